title: Everybody looks idle at once
hazard: H09; GUARD 6 breaker
start: 2026-11-02 08:00
end: 11:00
machines
  b1  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b2  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b3  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b4  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b5  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b6  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b7  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b8  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  b1 busy
  08:00  b2 busy
  08:00  b3 busy
  08:00  b4 busy
  08:00  b5 busy
  08:00  b6 busy
  08:00  b7 busy
  08:00  b8 busy
  08:30  b1 no signal
  08:30  b2 no signal
  08:30  b3 no signal
  08:30  b4 no signal
  08:30  b5 no signal
  08:30  b6 no signal
  08:30  b7 no signal
  08:30  b8 no signal
expect
  never act
  08:32-08:35  page breaker       # two samples are missing
