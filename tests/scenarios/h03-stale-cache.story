title: A cache shows it running after the stop
hazard: H03
start: 2026-11-02 08:00
end: 11:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  09:31-09:36  aws stale 3 polls
expect
  09:30  stop box
  once act
  10:00  box is stopped
