title: A whole idle cluster is stopped one by one, within the rails
hazard: GUARD 2 a group is idle only if all of it is; GUARD 6 one instance a run, three in ten minutes
start: 2026-11-02 08:00
end: 13:00
machines
  n0  gcp 8xH100-SXM $88.00, owner ada, labels cluster=big
  n1  gcp 8xH100-SXM $88.00, owner ada, labels cluster=big
  n2  gcp 8xH100-SXM $88.00, owner ada, labels cluster=big
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
config
  [rails]
  acts = { per_run = 1, per_10m = 3, fleet_percent = 100, fleet_percent_day = 100 }
events
  08:00  n0 busy
  08:00  n1 busy
  08:00  n2 busy
  09:00  n1 quiet
  09:10  n2 quiet
  09:30  n0 quiet
expect
  10:10  n1 is active             # by itself it would be idle since 09:00
  08:00-10:14  never notice idle-gpu
  10:15  notice idle-gpu n1 saying "its group big idles since 2026-11-02 09:3"
  08:00-10:28  never act
  10:29-10:40  stop n0
  10:29-10:40  stop n1
  10:29-10:40  stop n2
  3 times act
