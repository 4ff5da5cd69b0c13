title: An empty list is no proof
hazard: H01; GUARD 1 a wrong key that listed nothing
start: 2026-11-02 08:00
end: 11:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:00         box quiet
  08:30-08:50   aws empty
expect
  08:30-08:50  never act           # a machine that is not listed is not judged
  10:59  box is stopped
