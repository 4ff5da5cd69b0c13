title: A member that nothing measures
hazard: GUARD 2 unknown is never idle, and one that may work may be waited for
start: 2026-11-02 08:00
end: 12:00
machines
  n0  aws 8xA100-80GB-SXM $32.77, owner ada, labels cluster=big
  n1  aws 8xA100-80GB-SXM $32.77, owner ada, labels cluster=big
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  n0 no signal
  08:00  n1 quiet
  10:30  n0 stops                 # by hand: what does not run is waited for by nobody
expect
  10:00  n1 is unknown
  08:45-10:00  notice blind n1 saying "its group big cannot be judged: n0"
  08:00-10:29  never act
  10:31-10:50  stop n1
