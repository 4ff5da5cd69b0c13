title: A policy that is armed while a machine idles announces the stop before its grace begins
hazard: GUARD 3; H25
start: 2026-11-02 08:00
end: 11:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:05  arm idle-gpu notify
  08:30  box quiet
  10:00  arm idle-gpu stop
expect
  09:15  notice idle-gpu box saying "no stop while it is blocked"
  08:00-10:15  never act
  10:00-10:02  notice idle-gpu box saying "stops at"
  10:15-10:18  stop box
  once act
