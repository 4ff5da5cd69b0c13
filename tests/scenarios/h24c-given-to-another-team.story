title: A label moves it out of the policy within the grace
hazard: H24
start: 2026-11-02 08:00
end: 10:30
machines
  box  aws 8xA100-80GB-SXM $32.77, owner ada, labels team=vision
policies
  idle-vision  arm stop, gpu, match labels team=vision, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  09:29:30  box label team=language
expect
  never act
