title: Open editor, absent human
hazard: GUARD 9.4; GUARD 1 kept alive by an open editor tab
start: 2026-11-02 08:00
end: 20:00
machines
  pod  runpod H100-80GB-SXM $2.99, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, lease 2h x 3, notify, +15m stop
events
  08:00  pod busy
  09:00  pod quiet
  09:00  pod connected             # for hours, and nobody types
  10:00  keep pod for 2h why "back soon" by ada
  11:59  keep pod for 2h why "really" by ada
  13:58  keep pod for 2h why "nearly" by ada
  15:57  keep pod for 2h why "the last time" by ada
  17:56  keep pod for 2h why "once more" by ada
expect
  09:45  notice idle-gpu pod
  10:00  answer "5.98"
  17:56  refused "renew"
  09:45-19:12  never stop pod      # first a doubled grace (10:15), then leases
  18:42  notice idle-gpu pod       # the ladder starts anew when the last lease ends, at 17:57
  19:12  stop pod                  # and its grace is doubled again
