title: More than half gone at once
hazard: H01; GUARD 6 inventory drop
start: 2026-11-02 08:00
end: 09:30
machines
  b1  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b2  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b3  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b4  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b5  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b6  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  b1 busy
  08:00  b2 busy
  08:00  b3 busy
  08:00  b4 busy
  08:00  b5 busy
  08:00  b6 busy
  08:30-08:40  aws empty
expect
  never act
