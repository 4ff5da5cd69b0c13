title: One of eight busy
hazard: GUARD 9.8; waste is told, never acted on
start: 2026-11-02 08:00
end: 14:05
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
  wasted  arm notify, gpu, when "state == 'active' && wasted_share >= 0.5", for 1h, notify
events
  08:00  box busy on 1 GPU
expect
  never act
  09:00  notice wasted box
  09:01-12:59  never notice wasted
  13:00  notice wasted box         # repeated after 4 h
  2 times notice wasted box
  box spent $196.62 compute from Mon 08:00 to Mon 14:00
