title: A lease, a cancel, a restart or a protection ends a planned stop
hazard: GUARD 4; H22
start: 2026-11-02 08:00
end: 10:00
machines
  kept  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  left  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  anew  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  safe  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
events
  08:00  kept busy
  08:20  plan-stop kept in 1h by ada
  08:20  plan-stop left in 1h by ada
  08:20  plan-stop anew in 1h by ada
  08:20  plan-stop safe in 1h by ada
  08:40  keep kept for 10m why "one more run" by bob
  08:45  cancel-stop left by ada
  08:50  anew restarts
  09:19:59  protect safe why "mine" by bob
expect
  08:20  notice stop-at
  never act
  09:20  notice stop-at safe saying "bob protects it"
