title: The GPU is rented away: the start waits, is not repeated, and is paged
hazard: GUARD 9.25; issue 26.7; vast.md: it may wait for ever and bill later
start: 2026-11-03 19:40
end: 21:30
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
  20:30  box waits
expect
  21:00  start box
  once start box
  21:10-21:13  unconfirmed box
  21:10-21:13  page act:start box saying "waits for its GPU"
  21:29  box is stopped
