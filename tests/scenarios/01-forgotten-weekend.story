title: Forgotten weekend
hazard: GUARD 9.1; GUARD 1 machines kept alive for weeks
start: 2026-11-06 16:00
end: Mon 09:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 2m
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  16:00  box busy
  18:05  box quiet                 # training ends, nobody is connected
expect
  Fri 18:04  box is active
  18:50      notice idle-gpu box saying "$24.58"      # 45 min of it
  19:05      stop box
  19:07      verified box
  19:07      box is stopped
  once stop box
  once act
  once notice idle-gpu box         # and nothing more until Monday
  box spent $33.86 idle
  box spent $3.39 disk from Fri 19:07 to Mon 09:00
  box saved $2,024.53 from Fri 19:07 to Mon 09:00
