title: The channel is down
hazard: H37
start: 2026-11-02 08:00
end: 09:29
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  09:10-09:20  channel down
expect
  09:15  never message
  09:20-09:29  notice idle-gpu box
  once notice idle-gpu box
