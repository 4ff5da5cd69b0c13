title: Five jobs end at once, and each machine is asked about within two hours
hazard: H09; GUARD 6 breaker
start: 2026-11-02 08:00
end: 12:00
machines
  b1  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b2  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b3  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b4  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b5  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  b1 busy
  08:00  b2 busy
  08:00  b3 busy
  08:00  b4 busy
  08:00  b5 busy
  08:30  b1 quiet
  08:30  b2 quiet
  08:30  b3 quiet
  08:30  b4 quiet
  08:30  b5 quiet
  10:20  approve stop b3
expect
  08:30-09:20  page breaker
  09:15  notice idle-gpu b1
  08:00-10:19  never act
  10:20-10:22  stop b3
  once act
