title: A stop that a person planned, with a crash between
hazard: GUARD 4; H34
start: 2026-11-02 08:00
end: 09:50
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
events
  08:00  box busy
  08:20  plan-stop box in 1h why "the run is over" by ada
  08:50  watchdog crashes
expect
  08:20  notice stop-at box saying "stops at 09:20 UTC"
  08:00-09:19  never act
  09:20  stop box
  once stop box
  09:21  verified box
