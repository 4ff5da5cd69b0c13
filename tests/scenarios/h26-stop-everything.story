title: A policy that stops everything
hazard: H26; GUARD 6 acts
start: 2026-11-02 08:00
end: 09:30
machines
  b1  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b2  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b3  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b4  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b5  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b6  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b7  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b8  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b9  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b10  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  everything  arm stop, match providers aws, when "age > duration('1m')", for 1m, notify, +5m stop
config
  [rails]
  acts = { per_run = 1, per_10m = 3, fleet_percent = 10, fleet_percent_day = 20 }
events
  08:00  b1 busy
  08:00  b2 busy
  08:00  b3 busy
  08:00  b4 busy
  08:00  b5 busy
  08:00  b6 busy
  08:00  b7 busy
  08:00  b8 busy
  08:00  b9 busy
  08:00  b10 busy
  08:02  b1 quiet
  08:05  b2 quiet
  08:08  b3 quiet
  08:11  b4 quiet
  08:14  b5 quiet
  08:17  b6 quiet
  08:20  b7 quiet
  08:23  b8 quiet
  08:26  b9 quiet
  08:29  b10 quiet
  08:40  accept                    # until then it does nothing: it means ten acts
expect
  2 times act                      # 10 % of ten in 10 min, 20 % a day
  08:00-08:40  never act           # refused until somebody has read the plan
