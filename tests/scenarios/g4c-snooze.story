title: A snooze quiets, and what nobody was told of waits until it ends
hazard: GUARD 4 snooze
start: 2026-11-02 08:00
end: 10:30
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  08:31  snooze idle-gpu for 4h by ada
expect
  09:15-10:30  never notice idle-gpu box
  never act                        # nobody was told of it
