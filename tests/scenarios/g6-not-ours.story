title: Nobody's machine
hazard: GUARD 6 not ours
start: 2026-11-02 08:00
end: 11:00
machines
  box  aws 8xA100-80GB-SXM $32.77
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
config
  [watch]
  claims = ["runpod"]
events
  08:00  box busy
  08:30  box quiet
expect
  never act
