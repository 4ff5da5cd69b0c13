title: A third of a fleet of thirty is measured wrongly as idle at once: held, and asked about
hazard: H09 mass error
start: 2026-11-02 08:00
end: 12:00
machines
  m01  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m02  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m03  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m04  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m05  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m06  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m07  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m08  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m09  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m10  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m11  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m12  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m13  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m14  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m15  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m16  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m17  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m18  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m19  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m20  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m21  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m22  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m23  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m24  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m25  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m26  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m27  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m28  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m29  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  m30  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  m01 busy
  08:00  m02 busy
  08:00  m03 busy
  08:00  m04 busy
  08:00  m05 busy
  08:00  m06 busy
  08:00  m07 busy
  08:00  m08 busy
  08:00  m09 busy
  08:00  m10 busy
  08:00  m11 busy
  08:00  m12 busy
  08:00  m13 busy
  08:00  m14 busy
  08:00  m15 busy
  08:00  m16 busy
  08:00  m17 busy
  08:00  m18 busy
  08:00  m19 busy
  08:00  m20 busy
  08:00  m21 busy
  08:00  m22 busy
  08:00  m23 busy
  08:00  m24 busy
  08:00  m25 busy
  08:00  m26 busy
  08:00  m27 busy
  08:00  m28 busy
  08:00  m29 busy
  08:00  m30 busy
  08:30  m01 quiet
  08:30  m02 quiet
  08:30  m03 quiet
  08:30  m04 quiet
  08:30  m05 quiet
  08:30  m06 quiet
  08:30  m07 quiet
  08:30  m08 quiet
  08:30  m09 quiet
  08:30  m10 quiet
  11:30  m01 busy
  11:30  m02 busy
  11:30  m03 busy
  11:30  m04 busy
  11:30  m05 busy
  11:30  m06 busy
  11:30  m07 busy
  11:30  m08 busy
  11:30  m09 busy
  11:30  m10 busy
expect
  never act
  09:10-09:20  page breaker
  10:10-10:40  notice m01 saying "costguard approve"
  10:10-10:40  notice m10 saying "costguard approve"
