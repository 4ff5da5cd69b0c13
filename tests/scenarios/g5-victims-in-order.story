title: A cap takes the idle one, and leaves the one that works
hazard: GUARD 5 victims in order, and no more than is needed
start: 2026-11-01 18:00
end: Mon 00:30
machines
  works  aws 8xA100-80GB-SXM $32.77, owner ada, age 1m, stops-in 60s
  idles  aws 8xA100-80GB-SXM $32.77, owner bob, age 1m, stops-in 60s
budgets
  all  $388 day, hard
config
  [rails]
  acts = { per_run = 1, per_10m = 3, fleet_percent = 10, fleet_percent_day = 20 }
events
  18:00  works busy
  18:00  idles busy
  20:00  idles quiet
expect
  23:30-23:59  stop idles
  once stop idles
  never stop works
  all spent at most $388.00 from 18:00 to Mon 00:00
