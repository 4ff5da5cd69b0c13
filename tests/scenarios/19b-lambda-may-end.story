title: Lambda may end it where somebody allowed that
hazard: GUARD 9.19; H27
start: 2026-11-02 08:00
end: 12:00
machines
  box  lambda 8xH100-80GB-SXM $23.92, owner ada
policies
  idle-gpu  arm terminate, gpu, irreversible, when idle, for 45m, notify, +30m terminate
clouds
  lambda  no stop
events
  08:00  box busy
  09:00  box quiet
expect
  09:45  notice idle-gpu box
  10:15  terminate box
  once act
  10:17  box is ended
