title: Compile, then evaluate on the CPU
hazard: GUARD 9.3; H10; GUARD 1 stopped while it compiled on one core
start: 2026-11-02 08:00
end: 10:10
machines
  box    aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  other  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box cpu 1 core
  08:00  other quiet holding       # the same memory held, 0.01 core
  08:40  box cpu 8 cores
  09:10  box busy
expect
  08:20  box is active
  08:45  notice idle-gpu other
  08:55  box is active
  09:00  stop other
  never stop box
  never message box
