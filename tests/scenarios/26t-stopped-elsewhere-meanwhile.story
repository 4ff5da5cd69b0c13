title: Its provider dates the stop after ours was proven: somebody else stopped it, and it is told
hazard: GUARD 9.25; issue 26.7; a start that is wrong spends money
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
  19:40  box busy
  20:20 box stops
expect
  20:05-20:08  stop box
  never start box
  21:00-21:02  notice start:nights box saying "its provider reports a stop"
