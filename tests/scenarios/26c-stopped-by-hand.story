title: Somebody else stopped it: nothing is started
hazard: GUARD 9.25; issue 26.7; only what costguard itself stopped
start: 2026-11-03 19:40
end: 21:20
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
  19:40  box busy
  19:50  box stops
expect
  never act
  never notice start:nights box
  21:19  box is stopped
