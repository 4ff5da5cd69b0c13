title: Lambda has no stop
hazard: GUARD 9.19; H27
start: 2026-11-02 08:00
end: 12:00
machines
  box  lambda 8xH100-80GB-SXM $23.92, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
clouds
  lambda  no stop
events
  08:00  box busy
  09:00  box quiet
expect
  09:45  notice idle-gpu box
  never act                        # a stop that does not exist is asked about, and never becomes a terminate
  10:00  message box saying "11.96"
