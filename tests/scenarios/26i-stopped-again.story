title: Stopped again by hand: no loop, and not after the next off period either
hazard: GUARD 9.25; issue 26.7; never a start loop
start: 2026-11-03 19:40
end: 22:50
zone: Europe/Berlin
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
config
  [[policy]]
  name = "nights"
  rule = "schedule"
  arm = "stop"
  match = { gpu = true }
  schedule = { timezone = "Europe/Berlin", off = ["20:00-21:00", "22:00-22:30"], start = true }
  then = [{ do = "notify" }, { after = "5m", do = "stop" }]
events
  19:40  box busy
  21:30  box stops
expect
  once start box
  22:49  box is stopped
