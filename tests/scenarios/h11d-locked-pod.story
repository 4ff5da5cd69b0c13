title: A locked pod is not asked about
hazard: H11; GUARD 4
start: 2026-11-02 08:00
end: 12:00
machines
  box  runpod 8xH100-80GB-SXM $23.92, owner ada, protected stop terminate
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
clouds
  runpod  no stop
events
  08:00  box busy
  09:00  box quiet
expect
  09:45  notice idle-gpu box
  never message box saying "Terminate"
  never act                        # its provider would refuse what a "yes" allows
