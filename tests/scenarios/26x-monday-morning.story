title: Off every night and on weekends: stopped on Friday evening, started on Monday at 08:00
hazard: GUARD 9.25; issue 26.7; a start at the wrong hour spends money
start: 2026-11-06 19:40
end: 2026-11-09 08:30
zone: Europe/Berlin
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
config
  [[policy]]
  name = "nights"
  rule = "schedule"
  arm = "stop"
  match = { gpu = true }
  schedule = { timezone = "Europe/Berlin", off = ["20:00-08:00", "sat-sun"], start = true }
  then = [{ do = "notify" }, { after = "5m", do = "stop" }]
events
  Fri 19:40  box busy
expect
  Fri 20:05-20:08  stop box
  once start box
  Mon 08:00-08:02  start box
