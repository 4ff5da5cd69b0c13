title: A schedule over a cloud that has no stop
hazard: H27; GUARD 3 a stop never becomes an end by itself
start: 2026-11-02 19:00
end: 22:00
machines
  box  lambda 8xH100-80GB-SXM $23.92, owner ada, ends-loses "all data on it"
clouds
  lambda  no stop
policies
  nights  arm stop, gpu, off 20:00-08:00 UTC, notify, +10m stop
events
  19:00  box busy
expect
  19:45-20:15  notice nights box
  never act
