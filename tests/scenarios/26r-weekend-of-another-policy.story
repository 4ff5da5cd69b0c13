title: Nights end on a Saturday, and another policy wants weekends off: not started, and told
hazard: GUARD 9.25; issue 26.7; a start that is wrong spends money
start: 2026-11-06 19:40
end: 2026-11-07 14:00
zone: Europe/Berlin
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
config
  [[policy]]
  name = "nights"
  rule = "schedule"
  arm = "stop"
  match = { gpu = true }
  schedule = { timezone = "Europe/Berlin", off = ["20:00-08:00"], start = true }
  then = [{ do = "notify" }, { after = "5m", do = "stop" }]
  [[policy]]
  name = "weekend"
  rule = "schedule"
  arm = "stop"
  match = { gpu = true }
  schedule = { timezone = "Europe/Berlin", off = ["sat-sun"] }
  then = [{ do = "notify" }, { after = "5m", do = "stop" }]
events
  Fri 19:40  box busy
expect
  never start box
  Sat 08:00-08:02  notice start:nights box saying "weekend requires it to be off"
  Sat 13:59  box is stopped
