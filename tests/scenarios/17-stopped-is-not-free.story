title: Stopped is not free
hazard: GUARD 9.17; GUARD 1 stopped but still billed
start: 2026-11-02 07:00
end: day 10 08:00
poll: 60m
machines
  pod  runpod H100-80GB-SXM $2.99, disk 200 GB $0.10/$0.20 volume, owner ada, ends-loses "the data on the pod's own volume"
policies
  forgotten-stopped  arm notify, when "power == 'stopped' && stopped_for > duration('168h') && rate > usd_per_hour(0.01)", ask terminate
events
  07:00  pod quiet
  08:00  pod stops
expect
  pod spent $13.15 disk from Mon 08:00 to day 10 08:00
  pod spent $0.00 compute from Mon 08:00 to day 10 08:00
  never act
  day 7 09:00  message pod saying "own volume"
