title: A new install observes
hazard: GUARD 4 arming
start: 2026-11-02 08:00
end: 10:30
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
expect
  never act
  never notice idle-gpu box
