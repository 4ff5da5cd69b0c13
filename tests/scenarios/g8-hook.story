title: A checkpoint before the stop
hazard: GUARD 3 hook, GUARD 8 idle-gpu
start: 2026-11-06 17:00
end: 20:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 1m
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m hook checkpoint, +15m stop
config
  [[hook]]
  name = "checkpoint"
  command = ["sh", "-c", "grep -q box && test $COSTGUARD_POLICY = idle-gpu"]
events
  17:00  box busy
  18:05  box quiet
expect
  18:50      notice idle-gpu box
  19:06      stop box              # due at 19:05, and the hook that began then has ended
  once act
  never notice hook box
