title: The second look before a stop fails once, and the stop is done in the next run
hazard: GUARD 6 what holds a due act is told; issue 36
start: 2026-11-02 08:00
end: 10:30
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 60s
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00     box busy
  08:30     box quiet
  09:29:30  box look 2 fails
expect
  09:15  notice idle-gpu box
  09:31-09:33  stop box
  once act
  once notice idle-gpu box   # and no second announcement
  09:32-09:36  verified box
  10:29  box is stopped
