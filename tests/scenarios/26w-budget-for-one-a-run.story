title: The budget lasts for one of two, and one starts a run: the second waits for no burn to be seen
hazard: GUARD 9.25; issue 26.7; a start passes budgets of its own
start: 2026-11-03 19:40
end: 21:20
zone: Europe/Berlin
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
  bax  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
config
  [rails]
  starts = { per_run = 1 }
  [[policy]]
  name = "nights"
  rule = "schedule"
  arm = "stop"
  match = { gpu = true }
  schedule = { timezone = "Europe/Berlin", off = ["20:00-21:00"], start = true }
  then = [{ do = "notify" }, { after = "5m", do = "stop" }]
  [[budget]]
  name = "month"
  cap = "2700 USD"
  period = "month"
events
  19:40  box busy
  19:40  bax busy
expect
  once start bax
  never start box
