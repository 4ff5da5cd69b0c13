title: A freeze is lifted after the stop became due: a whole grace passes after a fresh announcement
hazard: GUARD 4 freeze; decision 0043; issue 36
start: 2026-11-02 08:00
end: 12:00
machines
  box   aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
  desk  aws 1xL4 $0.80, owner bob, stops-in 60s
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:00  desk busy
  08:30  box quiet
  08:50  desk quiet
  09:20  freeze why "release night" by ada
  10:40  thaw
expect
  08:00-10:55  never act
  10:40-10:43  notice idle-gpu box
  10:40-10:43  notice idle-gpu desk
  10:55-10:58  stop box
  10:55-11:00  stop desk
