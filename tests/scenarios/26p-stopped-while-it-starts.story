title: Stopped by hand while it starts: it stays stopped
hazard: GUARD 9.25; issue 26.7; a start that is wrong spends money
start: 2026-11-03 19:40
end: 22:40
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
  21:01  box stops
expect
  once start box
  22:39  box is stopped
