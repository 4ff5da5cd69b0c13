title: A hang whose policy is armed is stopped, and one whose steps move again is not
hazard: GUARD 9.5; a last look at a hang finds the busy GPUs of the hang
start: 2026-11-02 08:00
end: 11:00
machines
  box      aws 8xH100-80GB-SXM $98.32, owner ada
  returns  aws 8xH100-80GB-SXM $98.32, owner ada
policies
  hung-job  arm stop, gpu, when hung, for 20m, notify page, +15m stop
events
  08:00  box busy
  08:00  returns busy
  09:00  box hang 80 W
  09:00  returns hang 80 W
  09:35  returns busy
expect
  09:20  page hung-job box
  09:35-09:37  stop box
  once stop box
  never stop returns
