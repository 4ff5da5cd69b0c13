title: Its provider cannot be asked and a clock jumps: held until it is listed again
hazard: GUARD 9.25; issue 26.7; H16; H02
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
  19:40        box busy
  20:55-21:08  aws down
  21:09        clock jumps 10s
expect
  never unconfirmed box
  once start box
  21:08-21:13  start box
