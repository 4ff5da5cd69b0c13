title: A late start would land in the next off period: not started, and told
hazard: GUARD 9.25; issue 26.7; a start that is wrong spends money
start: 2026-11-03 18:40
end: 2026-11-03 21:20
zone: Europe/Berlin
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
config
  [[policy]]
  name = "nights"
  rule = "schedule"
  arm = "stop"
  match = { gpu = true }
  schedule = { timezone = "Europe/Berlin", off = ["19:00-20:00","21:00-23:00"], start = { within = "12h" } }
  then = [{ do = "notify" }, { after = "5m", do = "stop" }]
events
  18:40  box busy
  19:50-20:55  watchdog down
expect
  never start box
  20:55-21:05  notice start:nights box saying "in less than 30 min"
