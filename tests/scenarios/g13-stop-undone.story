title: A stop that somebody undid within the hour is asked about the next time
hazard: GUARD 2; learned from the machine's own past
start: 2026-11-02 08:00
end: 20:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
  other  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
  third  aws $1.00, owner ada      # so that 100 % a day of the fleet is four acts
  fourth  aws $1.00, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
config
  [rails]
  acts = { fleet_percent_day = 100, per_10m = 10 }
events
  08:00  box busy
  08:00  other busy
  09:00  box quiet
  09:00  other quiet
  10:30  box starts
  10:30  box busy
  12:30  other starts               # not within the hour
  12:30  other busy
  14:00  box quiet
  14:00  other quiet
expect
  10:00-10:08  stop box
  10:00-10:08  stop other
  15:00-15:10  stop other
  10:30-20:00  never stop box
  15:00-15:10  message box saying "was undone within the hour"
