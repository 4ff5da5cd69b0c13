title: A hang looks busy
hazard: GUARD 9.5; GUARD 1 a collective hang that shows 100 % at 70 W
start: 2026-11-02 08:00
end: 12:00
machines
  box  aws 8xH100-80GB-SXM $98.32, owner ada
policies
  hung-job  arm notify, gpu, when hung, for 20m, notify page
events
  08:00  box busy
  10:00  box hang 80 W
  11:00  box busy                  # the steps move again
expect
  10:20  page hung-job box saying "32.77"    # 20 min of it
  once page hung-job box
  once resolved hung-job box
  never act
