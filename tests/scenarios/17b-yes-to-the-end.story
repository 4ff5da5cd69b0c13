title: A stopped pod is ended after somebody said yes, and it is told as done, not asked again
hazard: GUARD 9.17; GUARD 3 acts that lose data need an approval
start: 2026-11-02 07:00
end: 13:00
machines
  pod  runpod H100-80GB-SXM $2.99, disk 200 GB $0.10/$0.20 volume, owner ada, ends-loses "the data on the pod's own volume"
policies
  forgotten-stopped  arm terminate, when "power == 'stopped' && stopped_for > duration('2h') && rate > usd_per_hour(0.01)", ask terminate
events
  07:00  pod quiet
  08:00  pod stops
  11:30  approve terminate pod
expect
  10:01  message pod saying "Terminate pod"
  11:30  terminate pod
  once terminate pod
  11:30  message pod saying "terminates at"
  11:30-11:40  message pod saying "was terminated"
  11:30-13:00  never message pod saying "pod (H100 80GB SXM)?"
