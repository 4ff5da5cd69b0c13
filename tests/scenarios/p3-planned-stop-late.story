title: Planned stops whose time passed while no watchdog ran, and one that a freeze holds
hazard: GUARD 4; H17
start: 2026-11-02 08:00
end: 10:30
machines
  box   aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  new   aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  iced  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner bob
events
  08:00  box busy
  08:20  plan-stop box in 1h by ada
  09:00-09:40  watchdog down
  09:10  plan-stop new in 20m by ada
  09:45  plan-stop iced in 30m by ada
  09:55  freeze why "release" by bob
expect
  08:20  notice stop-at box
  08:00-09:40  never act
  09:40  notice stop-at new
  08:00-09:44  never stop new        # a whole grace after its notice
  once stop box
  once stop new
  09:45  notice stop-at iced saying "10:15 UTC"
  09:55  notice stop-at iced saying "froze all acts"
  never stop iced
