title: Where one idle policy can judge a machine, no other one reports that its activity is unknown
hazard: H08; GUARD 2 reach
start: 2026-11-02 08:00
end: 13:00
machines
  pod    runpod H100-80GB-SXM $2.99, owner ada, measures duty cpu
  alone  gcp 8xH100-SXM $88.00, owner ada, measures cpu io
policies
  with-agent     arm stop, gpu, when idle, for 45m, needs duty cpu io, notify, +15m stop
  hung-job       arm notify, gpu, when hung, for 20m, notify      # it judges hangs, not idleness
  without-agent  arm notify, match providers runpod, when idle, for 2h, needs duty cpu, notify
events
  08:00  pod busy
  08:00  alone busy
  09:30  pod quiet
  09:30  alone quiet
expect
  09:40-11:00   notice blind alone
  never notice blind pod
  11:30-11:40   notice without-agent pod
  never act
