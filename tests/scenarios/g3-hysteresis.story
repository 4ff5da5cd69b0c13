title: Leaving the state resets the ladder
hazard: GUARD 3 hysteresis
start: 2026-11-02 08:00
end: 10:50
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  09:20  box busy
  09:40  box quiet
expect
  09:15  notice idle-gpu box
  09:15-10:39  never stop box
  10:40  stop box
