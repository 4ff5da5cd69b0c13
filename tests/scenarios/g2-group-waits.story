title: A node waits at a barrier while rank 0 downloads
hazard: GUARD 2 a group has a state of work; GUARD 1 work killed while it downloaded
start: 2026-11-02 08:00
end: 14:00
machines
  rank0  aws 8xA100-80GB-SXM $32.77, owner ada, labels skypilot-cluster-name=exp-7
  rank1  aws 8xA100-80GB-SXM $32.77, owner ada, labels skypilot-cluster-name=exp-7, region eu-west-1
  other  aws 8xA100-80GB-SXM $32.77, owner ada, labels skypilot-cluster-name=exp-8
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  rank0 io 6.1 MB/s       # 110 GB: five hours
  08:00  rank1 quiet
  08:00  other quiet
  13:00  rank0 busy
  13:00  rank1 busy
expect
  08:50  other is idle
  09:00  stop other              # a group of one is as none
  10:00  rank1 is active
  never notice idle-gpu rank1
  never stop rank1
  never stop rank0
  08:45-10:00  notice waste rank1 saying "8 of 8 GPUs"
