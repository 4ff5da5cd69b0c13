title: Freeze stops all acts and nothing else
hazard: GUARD 4 freeze
start: 2026-11-02 08:00
end: 10:30
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  08:31  freeze why "release night" by ada
expect
  never act
  09:15  notice idle-gpu box
