title: Stop not confirmed: 200, and it stays running
hazard: GUARD 9.22; H20; GUARD 1 'terminated' that was not
start: 2026-11-02 08:00
end: 10:30
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  09:00  box deaf
expect
  09:15  notice idle-gpu box
  09:30  stop box
  09:31  stop box
  09:33  stop box
  09:37  stop box
  09:40  page box saying "NOT CONFIRMED"
  09:40  unconfirmed box
  never verified box
  10:29  box is running
