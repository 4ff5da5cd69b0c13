title: Work on a prepaid account is stopped in order while there is still a balance
hazard: GUARD 9.18; H29 RunPod deletes pods at zero
start: 2026-11-02 08:00
end: 10:30
machines
  pod   runpod H100-80GB-SXM $2.99, owner ada
  keep  aws 8xA100-80GB-SXM $32.77, owner ada
clouds
  runpod  paid $20.93
policies
  nearly-empty  arm stop, when 'runway < duration("5h")', notify page, +10m stop
events
  08:00  pod quiet
  08:00  keep quiet
expect
  10:00-10:03  page nearly-empty pod    # 20.93 / 2.99 = 7 h from 08:00
  10:10-10:14  stop pod
  once stop pod
  never stop keep
