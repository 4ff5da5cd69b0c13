title: Started by hand at ten in the evening
hazard: GUARD 9.25; a start by hand is a lease of 2 h
start: 2026-11-03 18:00
end: Wed 02:00
zone: Europe/Berlin
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
  other  aws $1.00, owner ada      # so that 20 % a day of one machine is not all
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
config
  [rails]
  acts = { fleet_percent_day = 100 }
  [[policy]]
  name = "nights"
  rule = "schedule"
  arm = "stop"
  match = { gpu = true }
  schedule = { timezone = "Europe/Berlin", off = ["20:00-08:00"] }
  then = [{ do = "notify" }, { after = "5m", do = "stop" }]
events
  18:00  box busy
  22:00  box starts
  22:00  box busy
  23:00  box quiet
expect
  20:00-20:08  stop box
  22:00-01:00  never stop box      # a lease until midnight, then 45 min and a grace
  Wed 01:00    stop box
  2 times stop box
