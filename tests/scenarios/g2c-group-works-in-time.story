title: Another member begins to work a second before the send
hazard: H24; GUARD 2 fresh re-probe, of the whole group
start: 2026-11-02 08:00
end: 11:20
machines
  n0  aws 8xA100-80GB-SXM $32.77, owner ada, labels cluster=big
  n1  aws 8xA100-80GB-SXM $32.77, owner ada, labels cluster=big, protected stop
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  n0 busy
  08:00  n1 busy
  08:30  n0 quiet
  08:30  n1 quiet
  09:29:59  n1 busy
expect
  09:15  notice idle-gpu n0
  never act
