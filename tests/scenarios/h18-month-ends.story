title: A month that ends gives its cap back
hazard: H18
start: 2026-10-31 18:00
end: Sun 04:00
zone: Europe/Berlin
machines
  big  aws 8xH100-80GB-SXM $98.32, owner ada, age 1m, stops-in 60s
budgets
  all  $900 month, hard
events
  18:00  big busy
expect
  never act
  all spent $983.20 compute
