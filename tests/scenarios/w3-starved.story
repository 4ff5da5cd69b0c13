title: A job that starves for data
hazard: H10; GPU 3 %, 0.15 cores and 0.5 MB/s are each below their threshold, and together work
start: 2026-11-02 08:00
end: 15:30
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 2m
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  09:00  box starved               # its loader reads from a slow bucket
  13:00  box quiet
expect
  09:30  box is active
  12:59  box is active
  08:00-13:44  never message
  13:45  notice idle-gpu box
  14:00  stop box
