title: The answer is lost after really stopping
hazard: GUARD 9.22; H21
start: 2026-11-02 08:00
end: 10:30
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  09:00  box lost
expect
  09:30  stop box
  once act
  09:31  verified box
  never page
