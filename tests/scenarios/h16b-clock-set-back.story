title: A clock that is set back within the grace
hazard: H16
start: 2026-11-02 08:00
end: 10:30
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  09:20  clock jumps -10m
  10:00  clock jumps 10m
expect
  08:00-09:29  never act
