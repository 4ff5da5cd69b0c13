title: Hard cap, act early
hazard: GUARD 9.10; H29; GUARD 1 budgets that say no a day late
start: 2026-11-01 00:00
end: 05:30
machines
  big  aws 8xH100-80GB-SXM $98.32, owner ada, age 1m, stops-in 60s
budgets
  all  $500 month, hard
clouds
  aws  acts take 30s/2m
events
  00:00  big busy
  05:10  hold big2 $98.32 by bot
expect
  big spent at most $500.00
  all spent at most $500.00
  once stop big
  05:10  refused "budget"
