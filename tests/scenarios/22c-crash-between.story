title: Crash between the call and the record
hazard: GUARD 9.22; H20
start: 2026-11-02 08:00
end: 10:30
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 3m
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  09:30:20  watchdog crashes
expect
  09:30  stop box
  once act                         # one look, and no second act or notice
  once notice idle-gpu box
  09:33  verified box
