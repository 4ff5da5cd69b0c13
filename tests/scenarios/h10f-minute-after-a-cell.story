title: The minute a 12-minute cell ended
hazard: GUARD 1 the minute a 12-minute cell ended
start: 2026-11-02 08:00
end: 09:10
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:12  box quiet
expect
  08:00-08:56  never message
  08:57  notice idle-gpu box
