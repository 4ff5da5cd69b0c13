title: A cap never takes what is protected, and pages
hazard: GUARD 5; H11
start: 2026-11-01 00:00
end: 02:00
machines
  big  aws 8xH100-80GB-SXM $98.32, owner ada, labels costguard=never, stops-in 60s
budgets
  all  $100 day, hard
events
  00:00  big busy
expect
  00:30-01:30  page
  never act
