title: What was just seen is left alone
hazard: GUARD 6 first seen
start: 2026-11-02 19:58
end: 20:40
machines
  box  aws 8xA100-80GB-SXM $32.77, owner ada, age 1m, stops-in 60s
policies
  nights  arm stop, gpu, off 20:00-08:00 UTC, notify, +5m stop
events
  19:58  box busy
expect
  19:58-20:13  never act
  20:13-20:20  stop box
  once act
