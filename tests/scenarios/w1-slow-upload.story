title: Slow upload
hazard: H10; an upload at 0.6 MB/s takes three hours
start: 2026-11-02 08:00
end: 14:30
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 2m
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  09:00  box io 0.6 MB/s           # 6.5 GB of checkpoints
  12:00  box quiet
expect
  09:30  box is active
  11:59  box is active
  08:00-12:44  never message
  12:45  notice idle-gpu box
  13:00  stop box
