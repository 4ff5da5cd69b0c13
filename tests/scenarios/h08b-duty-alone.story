title: GPU duty alone is not enough
hazard: GUARD 2 confidence is capped by what was seen
start: 2026-11-02 08:00
end: 11:00
machines
  box  runpod H100-80GB-SXM $2.99, owner ada, measures duty
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
expect
  never act
