title: A weekend
hazard: GUARD 1 every machine is another way to lose money
zone: UTC
start: 2026-11-06 16:00
end: Mon 09:00
poll: 20m
machines
  train     aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, age 1m, owner ada, stops-in 2m, measures duty cpu io
  fetch     runpod H100-SXM $2.99, age 1m, owner bob, measures duty cpu io
  finetune  gcp 8xH100-80GB-SXM $88.49, age 1m, owner cyd, measures duty power cpu io progress
  sweep     vast 8xA100-80GB-SXM $9.60, age 1m, owner dee, labels team=sweeps, measures duty cpu io
  notebook  lambda 8xH100-SXM $23.92, age 1m, owner eve, measures duty cpu io
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
  hung-job  arm notify, gpu, when hung, for 20m, notify page
budgets
  sweeps  $120 day, hard, match labels team=sweeps
config
  [defaults]
  timezone = "UTC"
  [rails]
  acts = { fleet_percent_day = 100 }      # of five machines, 20 % would be one act a day
clouds
  lambda  no stop
events
  Fri 16:00  train busy
  Fri 16:00  fetch io 6.1 MB/s
  Fri 16:00  finetune busy
  Fri 16:00  sweep busy
  Fri 16:00  notebook busy
  Fri 18:00  train quiet
  Sat 02:00  fetch busy
  Sat 10:00  finetune hang 80 W
  Sat 11:00  finetune busy
  Sat 12:00  fetch ends
  Sat 14:00  finetune ends
  Sat 15:00  notebook quiet
  Sat 17:20  approve terminate notebook by eve why "it is saved"
expect
  Fri 18:45-19:20      notice idle-gpu train
  Fri 19:00-19:40      stop train
  once stop train
  Fri 16:00            fetch is active
  Sat 01:40            fetch is active
  never stop fetch
  never terminate fetch
  never message fetch
  Sat 10:20-11:00      page hung-job finetune
  Sat 11:00-12:00      resolved hung-job finetune
  never stop finetune
  Sat 11:20-12:40      stop sweep
  Sat 15:45-16:40      message notebook saying "asked because"
  Sat 15:00-17:20      never terminate notebook
  never stop notebook
  Sat 17:20-20:00      terminate notebook
  sweep spent at most $120.00 from Sat 00:00 to Sun 00:00
