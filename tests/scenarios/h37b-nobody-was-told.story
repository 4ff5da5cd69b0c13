title: The channel fails from before the notice until after the stop was due: nothing is stopped until somebody was told
hazard: GUARD 3; H37
start: 2026-11-02 08:00
end: 11:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00        box busy
  08:30        box quiet
  09:10-09:50  channel down
expect
  09:15-09:50  never message
  08:00-10:07  never stop box
  09:53        notice idle-gpu box            # the try after 09:38
  10:08        stop box                       # 15 minutes after the delivery
  once act
