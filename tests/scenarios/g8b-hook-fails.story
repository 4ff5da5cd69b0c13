title: A checkpoint that fails is told, and holds the stop back for one more grace
hazard: GUARD 3 hook
start: 2026-11-06 17:00
end: 20:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 1m
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m hook checkpoint, +15m stop
config
  [[hook]]
  name = "checkpoint"
  command = ["sh", "-c", "echo the disk is full; exit 3"]
events
  17:00  box busy
  18:05  box quiet
expect
  18:50      notice idle-gpu box
  19:06      notice checkpoint box saying "ended with status 3"
  19:06      notice checkpoint box saying "the disk is full"
  19:05-19:10  never act
  19:11      stop box              # 5 min after it was told, at 19:06
  once act
