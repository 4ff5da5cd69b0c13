title: The group fights back
hazard: GUARD 9.20; GUARD 1 a member of an auto-scaling group that comes straight back
start: 2026-11-02 08:00
end: 12:00
machines
  m1  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, controller "auto-scaling group train"
  m2  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, controller "auto-scaling group train", later
  m3  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, controller "auto-scaling group train", later
  m4  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, controller "auto-scaling group train", later
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  m1 quiet
  10:00  m1 replaced by m2
  10:01  m2 quiet
  10:20  m2 replaced by m3
  10:21  m3 quiet
  10:40  m3 replaced by m4
  10:41  m4 quiet
expect
  08:45  notice idle-gpu m1 saying "auto-scaling group train"
  never act
  10:40-10:45  notice churn
