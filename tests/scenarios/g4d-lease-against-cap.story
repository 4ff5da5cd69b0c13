title: A lease does not beat a hard cap
hazard: GUARD 4; H41
start: 2026-11-01 00:00
end: 02:00
machines
  big  aws 8xH100-80GB-SXM $98.32, owner ada, stops-in 60s
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
budgets
  all  $100 day, hard
events
  00:00  big busy
  00:10  keep big for 8h why "a paper" by ada
  00:10  phase train big for 8h
expect
  once stop big
  all spent at most $100.00
