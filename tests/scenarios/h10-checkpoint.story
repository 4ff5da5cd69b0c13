title: Five minutes of pause, five of work
hazard: H10; GUARD 2 a tenth of the window is work
start: 2026-11-02 08:00
end: 09:40
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:10  box quiet
  08:15  box busy
  08:20  box quiet
  08:25  box busy
  08:30  box quiet
  08:35  box busy
  08:55  box busy
expect
  never notice idle-gpu box
  never act
