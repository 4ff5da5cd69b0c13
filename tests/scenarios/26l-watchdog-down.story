title: The watchdog was down when it was due: it says so, and starts nothing hours later
hazard: GUARD 9.25; issue 26.7; a start has its time
start: 2026-11-03 19:40
end: 23:20
zone: Europe/Berlin
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
config
  [[policy]]
  name = "nights"
  rule = "schedule"
  arm = "stop"
  match = { gpu = true }
  schedule = { timezone = "Europe/Berlin", off = ["20:00-21:00"], start = true }
  then = [{ do = "notify" }, { after = "5m", do = "stop" }]
events
  19:40        box busy
  20:50-23:10  watchdog down
expect
  never start box
  23:10-23:14  notice start:nights box saying "its time passed"
