title: The ledger cannot be written
hazard: H31; GUARD 6 ledger write fails
start: 2026-11-02 08:00
end: 11:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:30  box quiet
  09:20-10:00  ledger full
expect
  09:20-10:00  never act
