title: A job whose GPUs wait for data
hazard: H10; a policy on the use of GPUs says what the samples look like and what to try
start: 2026-11-02 08:00
end: 09:30
machines
  box  aws 4xA100-80GB-SXM $16.38, owner ada
policies
  low-use  arm notify, gpu, when "gpu_util.mean('2h') < 0.4", for 10m, notify
events
  08:00  box jumps
expect
  never act
  08:01-09:08  never notice low-use box
  09:09  notice low-use box saying "busiest of 4 GPUs at 35 % for 2 h, jumping between 0 and 100 %: it probably waits"
