title: A protecting tag vanishes
hazard: H11; GUARD 4 sticky protection
start: 2026-11-02 08:00
end: 11:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, labels costguard=never
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:20  box quiet
  08:30  box unlabel costguard
expect
  never act
