title: A question that somebody answers
hazard: GUARD 3 approval; H27
start: 2026-11-02 08:00
end: 11:00
machines
  box  lambda 8xH100-80GB-SXM $23.92, owner ada, ends-loses "all data on it"
clouds
  lambda  no stop
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  10:00  approve terminate box
expect
  08:00-10:00  never act
  10:00-10:01  terminate box
  once act
