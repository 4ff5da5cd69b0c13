title: A protected machine in a shared budget draws no stop onto the machines of others
hazard: GUARD 5; H11; labels are not authority
start: 2026-11-01 00:00
end: 04:00
machines
  mine    aws 8xH100-80GB-SXM $98.32, owner mallory, labels costguard=never team=b, stops-in 60s
  theirs  aws 1xA100-80GB-SXM $4.10, owner bob, labels team=b, stops-in 60s
  idles   aws 1xA100-80GB-SXM $4.10, owner bob, labels team=b, stops-in 60s
budgets
  all  $100 day, hard
events
  00:00  mine busy
  00:00  theirs busy
  00:00  idles quiet
expect
  00:30-01:30  page
  never act
