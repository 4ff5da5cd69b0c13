title: The night in which clocks go back
hazard: GUARD 9.25; H16; H18
start: 2026-10-24 18:00
end: Sun 08:10
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
  18:00  box busy
expect
  20:00-20:08  stop box
  once stop box
  Sun 07:59  box is stopped
  box spent $0.00 compute from Sat 20:10 to Sun 08:00
