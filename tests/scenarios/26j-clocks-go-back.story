title: The clocks go back in between: started by the clock on the wall, once
hazard: GUARD 9.25; issue 26.7
start: 2026-10-25 01:00
end: 03:50
zone: Europe/Berlin
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
config
  [[policy]]
  name = "nights"
  rule = "schedule"
  arm = "stop"
  match = { gpu = true }
  schedule = { timezone = "Europe/Berlin", off = ["01:30-03:30"], start = true }
  then = [{ do = "notify" }, { after = "5m", do = "stop" }]
events
  01:00  box busy
expect
  01:35-01:38  stop box
  03:29  box is stopped
  03:30  start box
  once start box
