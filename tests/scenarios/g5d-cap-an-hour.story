title: A cap an hour for one person stops her idle machine when a third one starts, and nobody else's
hazard: GUARD 5; decision 0149: nothing is done while what runs is all of the cap, and it acts on a nano-dollar more
start: 2026-11-03 08:00
end: 09:15
machines
  works   aws 1xA100-80GB-SXM $8.00, owner ada, age 1d, stops-in 60s
  idles   aws 1xA100-80GB-SXM $4.00, owner ada, age 1d, stops-in 60s
  late    aws 1xA100-80GB-SXM $3.00, owner ada, age 1d, stops-in 60s, stopped
  theirs  aws 1xA100-80GB-SXM $9.00, owner bob, age 1d, stops-in 60s
config
  [rails]
  acts = { per_run = 1, per_10m = 3, fleet_percent = 50, fleet_percent_day = 100 }
  [[budget]]
  name = "ada"
  cap = "12 USD/h"
  hard = true
  match = { owners = ["ada"] }
events
  08:00  works busy
  08:00  theirs busy
  08:00  idles quiet
  09:00  late starts
expect
  09:00-09:10  stop idles
  09:00-09:05  page budget:ada saying "15.00 of $12.00 an hour"
  once stop idles
  never stop works
  never stop late
  never stop theirs
