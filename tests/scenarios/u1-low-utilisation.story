title: A job that uses little of its GPUs
hazard: H10; little use is no idleness: it is told, and what works is not stopped
start: 2026-11-02 08:00
end: 14:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  new  aws A100-80GB-SXM $4.10, owner ada
policies
  low-use  arm stop, gpu, when "gpu_util.mean('2h') < 0.3", for 10m, notify, +15m stop
events
  08:00  box busy
  08:00  new busy
  10:00  box gpu 12 %                # its mean of 2 h is below 0.3 from 11:33 on
  10:00  new no signal               # nothing is measured: unknown, and no act
  13:00  box busy
expect
  never act
  08:01-11:42  never notice low-use box
  11:43  notice low-use box saying "is 0.2"
  never notice low-use new
