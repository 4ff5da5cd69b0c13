title: Somebody types
hazard: H10; GUARD 2 people
start: 2026-11-02 08:00
end: 11:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  08:40  box types
  09:05  box types
  09:30  box types
  09:55  box types
  10:20  box types
expect
  never act
