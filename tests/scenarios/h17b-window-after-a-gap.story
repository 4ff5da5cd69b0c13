title: After a gap the window begins anew
hazard: H17; GUARD 2 windows restart empty
start: 2026-11-02 08:00
end: 10:40
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  08:50-09:10  watchdog down
expect
  08:30-10:09  never act
  10:10-10:13  stop box
