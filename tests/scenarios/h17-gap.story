title: A laptop asleep
hazard: H17; GUARD 6 gap
start: 2026-11-02 08:00
end: 11:10
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  08:40-09:40  watchdog down
expect
  09:40-10:24  never act           # windows restart empty after a gap
  once stop box
