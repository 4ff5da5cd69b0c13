title: A loop keeps one core busy and no GPU works
hazard: GUARD 1 a keep-alive loop; H10
start: 2026-11-02 08:00
end: 16:00
machines
  box  aws 8xA100-80GB-SXM $32.77, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  09:00  box cpu 1 core
expect
  08:00-12:55  never message
  13:00-13:05  notice waste box saying "8 of 8 GPUs"
  never act
