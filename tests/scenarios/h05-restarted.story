title: Restarted while the ladder ran
hazard: H05; GUARD 1 a machine somebody restarted while the stop was in the queue
start: 2026-11-02 08:00
end: 11:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  09:29  box restarts
  09:29  box quiet
expect
  09:15  notice idle-gpu box
  09:30  never stop box            # a new life, with its full grace
  09:29-10:28  never stop box
