title: One act for good an hour
hazard: GUARD 6 irreversible; H27
start: 2026-11-02 08:00
end: 13:00
machines
  pod1  runpod H100-80GB-SXM $2.99, owner ada, loses "the container disk"
  pod2  runpod H100-80GB-SXM $2.99, owner ada, loses "the container disk"
policies
  idle-gpu  arm stop, irreversible, gpu, when idle, for 45m, notify, +15m stop
config
  [rails]
  acts = { fleet_percent_day = 100 }
events
  08:00  pod1 busy
  08:00  pod2 busy
  08:30  pod1 quiet
  08:30  pod2 quiet
expect
  09:30-10:29  once stop
