title: Balance to zero
hazard: GUARD 9.18; GUARD 1 RunPod deletes pods without a network volume at zero
start: 2026-11-02 08:00
end: 09:00
machines
  pod1  runpod H100-80GB-SXM $2.99, owner ada
  pod2  runpod H100-80GB-SXM $2.99, owner ada
  pod3  runpod H100-80GB-SXM $2.99, owner ada
  pod4  runpod H100-80GB-SXM $2.99, owner ada, ends-loses "all of it: it has no network volume"
clouds
  runpod  paid $41.20
events
  08:00  pod1 busy
  08:00  pod2 busy
  08:00  pod3 busy
  08:00  pod4 busy
expect
  08:00-08:03  message             # 41.20 / 11.96 = 3.44 h to zero
  never act
  all spent $11.96 compute
