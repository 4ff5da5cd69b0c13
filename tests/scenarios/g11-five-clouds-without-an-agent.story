title: The shipped policy on five clouds without an agent: each idle machine is told of within the hour, and asked about
hazard: GUARD 2 reach; H08
start: 2026-11-02 08:00
end: 10:30
machines
  a  aws 8xA100-80GB-SXM $32.77, owner ada, measures cpu
  g  gcp 8xH100-SXM $88.00, owner ada, measures cpu io
  r  runpod H100-80GB-SXM $2.99, owner ada, measures duty cpu
  v  vast RTX4090 $0.40, owner ada, measures duty cpu
  l  lambda H100-80GB-SXM $2.99, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  a busy
  08:00  g busy
  08:00  r busy
  08:00  v busy
  08:00  l no signal
  08:30  a quiet
  08:30  g quiet
  08:30  r quiet
  08:30  v quiet
expect
  never act
  09:15-09:30  notice idle-gpu a
  09:15-09:30  notice idle-gpu g
  09:15-09:30  notice idle-gpu r
  09:15-09:30  notice idle-gpu v
  08:45-09:30  notice blind l
  09:30-10:00  notice idle-gpu a saying "stop"
  09:30-10:00  notice idle-gpu g saying "costguard approve"
  09:30-10:00  notice idle-gpu r saying "costguard approve"
  09:30-10:00  notice idle-gpu v saying "costguard approve"
