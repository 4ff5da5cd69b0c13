title: Somebody keeps the machine while its checkpoint runs, or it works again
hazard: GUARD 3 hook, GUARD 4 lease
start: 2026-11-06 17:00
end: 20:00
machines
  kept  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  back  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m hook checkpoint, +15m stop
config
  [[hook]]
  name = "checkpoint"
  command = ["true"]
events
  17:00  kept busy
  17:00  back busy
  18:05  kept quiet
  18:05  back quiet
  19:05:20  keep kept for 2h
  19:05:20  back busy
expect
  never act
