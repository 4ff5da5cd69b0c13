title: A lease outlives a flip of state
hazard: H34a
start: 2026-11-02 08:00
end: 11:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  08:40  keep box for 3h why "mine" by ada
  09:00-09:20  aws down
expect
  never act
