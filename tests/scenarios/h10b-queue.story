title: A job waits in the queue
hazard: H10; GUARD 2 pending counts
start: 2026-11-02 08:00
end: 11:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  08:30  box queue 2 jobs
expect
  never act
  10:00  box is active
