title: Gone from a listing is not ended
hazard: H04
start: 2026-11-02 08:00
end: 11:00
machines
  box  lambda 8xH100-80GB-SXM $23.92, owner ada, ends-loses "all data on it"
  other  lambda 1xH100-80GB-SXM $2.99, owner ada, ends-loses "all data on it"
clouds
  lambda  no stop
policies
  idle-gpu  arm terminate, irreversible, gpu, when idle, for 45m, notify, +15m terminate
events
  08:00  box busy
  08:00  other busy
  08:30  box quiet
  09:20  box deaf
  09:31-09:33  lambda hides box
expect
  09:30  terminate box
  09:30-09:40  never verified box
  09:40-09:45  unconfirmed box
