title: A policy that judges each member by itself
hazard: GUARD 2 a policy may say that members do not wait for each other
start: 2026-11-02 08:00
end: 11:00
machines
  n0  aws 8xA100-80GB-SXM $32.77, owner ada, labels cluster=sweep
  n1  aws 8xA100-80GB-SXM $32.77, owner ada, labels cluster=sweep
policies
  idle-gpu  arm stop, gpu, alone, when idle, for 45m, notify, +15m stop
events
  08:00  n0 busy
  08:00  n1 quiet
expect
  08:50  n1 is idle
  09:00  stop n1
  never stop n0
