title: Slow download
hazard: GUARD 9.2; H10; GUARD 1 stopped while it downloaded 110 GB at 6 MB/s
start: 2026-11-02 08:00
end: 14:30
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 2m
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box io 6.1 MB/s           # 110 GB take five hours
  13:00  box quiet
expect
  08:30  box is active
  12:59  box is active
  08:00-13:44  never message
  13:45  notice idle-gpu box       # 45 min after the end, not 5 h
  14:00  stop box
  box spent $33.86 idle            # 13:00 to 14:02, and two minutes of it going down
