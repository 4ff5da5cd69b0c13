title: Stopped when it should be off, started when it should be on
hazard: GUARD 9.25; issue 26.7; a start is sent once
start: 2026-11-03 19:40
end: 21:40
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
expect
  20:05-20:08  stop box
  20:59  box is stopped
  21:00  start box
  once start box
  21:01-21:04  verified box
  21:01-21:04  notice act:start box saying "$32.77"
  never notice nights box saying "only this notification"
  21:39  box is running
  once stop box
