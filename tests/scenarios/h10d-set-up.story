title: Set-up is not idleness
hazard: GUARD 1 during set-up
start: 2026-11-02 08:00
end: 11:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  new  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, age 1m
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  10:58  box busy
expect
  never stop new
