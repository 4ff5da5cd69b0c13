title: A second idle machine joins the first message
hazard: GUARD 7 new in group
start: 2026-11-02 08:00
end: 10:00
machines
  box1  aws 8xA100-80GB-SXM $32.77, owner ada
  box2  aws 8xA100-80GB-SXM $32.77, owner ada
policies
  idle-gpu  arm notify, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box1 busy
  08:00  box2 busy
  08:10  box1 quiet
  08:30  box2 quiet
expect
  08:55  notice idle-gpu box1
  09:15  notice idle-gpu box2
  never act
