title: A crash forgets no lease
hazard: H34a; H20
start: 2026-11-02 08:00
end: 10:40
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  09:20  keep box for 2h why "mine" by ada
  09:21  watchdog crashes
expect
  never act
