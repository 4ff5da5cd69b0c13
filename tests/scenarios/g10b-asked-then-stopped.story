title: Past its lease: a question first, and the stop that follows is announced in it
hazard: GUARD 2 lease rules fail closed
start: 2026-11-02 08:00
end: 11:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  past-lease  arm stop, gpu, rule limit, when "lease_over > duration('1m')", ask stop, +30m stop
events
  08:00  box no signal
  08:20  keep box for 1h by ada
expect
  09:22  notice past-lease box saying "unless somebody keeps it"
  08:00-09:51  never act
  09:52  stop box
  once act
