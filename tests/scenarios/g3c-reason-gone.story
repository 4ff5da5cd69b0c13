title: Work begins in the grace, and what was planned is taken back
hazard: H22; GUARD 3 an intent goes with its reason
start: 2026-11-02 08:00
end: 09:40
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  09:20  box busy
expect
  09:15  notice idle-gpu box
  09:21  cancelled box
  never act
