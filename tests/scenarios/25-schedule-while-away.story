title: Off at night, with the watchdog down at eight
hazard: GUARD 9.25; H17; schedules are desired states
start: 2026-11-03 18:00
end: Wed 08:00
zone: Europe/Berlin
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
config
  [[policy]]
  name = "nights"
  rule = "schedule"
  arm = "stop"
  match = { gpu = true }
  schedule = { timezone = "Europe/Berlin", off = ["20:00-08:00"] }
  then = [{ do = "notify" }, { after = "5m", do = "stop" }]
events
  18:00        box busy
  19:55-20:40  watchdog down
expect
  20:41-20:47  stop box            # after its grace, whatever was missed at 20:00
  once stop box
  Wed 07:59  box is stopped
