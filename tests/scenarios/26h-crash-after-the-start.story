title: A lost answer and a crash after the start: sent once
hazard: GUARD 9.25; issue 26.7; H20
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
  20:30  box lost
  21:01  watchdog crashes
expect
  21:00  start box
  once start box
  21:05  box is running
