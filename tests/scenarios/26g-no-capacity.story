title: No capacity: tried again after 5, 15 and 45 minutes, then told
hazard: GUARD 9.25; issue 26.7; never a start loop
start: 2026-11-03 19:40
end: 22:30
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
  20:30  box refuses
expect
  21:00  start box
  21:01-21:03  notice start:nights box saying "tried again"
  4 times start box
  21:05-21:07  start box
  21:20-21:23  start box
  22:05-22:10  start box
  22:05-22:12  notice start:nights box saying "4 tries failed"
  22:05-22:12  notice start:nights box saying "costguard start aws/"
