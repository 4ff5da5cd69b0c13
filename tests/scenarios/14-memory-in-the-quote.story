title: Memory in the quote
hazard: GUARD 9.14; admission that fails
start: 2026-11-02 08:00
end: 08:05
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
events
  08:01  run "costguard size seven-billion.toml --method full --optimizer adamw --precision bf16-amp --on A100-80GB-SXM:1"
  08:02  run "costguard size seven-billion.toml --method full --optimizer adamw --precision bf16-amp --zero 3 --on A100-80GB-SXM:2"
expect
  08:01  refused "104.31"          # GiB of states in the step: 112.0 GB, 16 B for each of 7.00 billion
  08:01  refused "does not fit on A100-80GB-SXM x1"
  08:02  answer "fits on A100-80GB-SXM x2"
