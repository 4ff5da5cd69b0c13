title: A date without a zone ends nothing and is told; a policy for missing dates ends the machine
hazard: GUARD 2 limit rules fail closed, and H24: an unreadable date counts as missing, and its owner reads what to write
start: 2026-11-02 08:00
end: 10:30
machines
  box    aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, labels "costguard:until=tomorrow evening"
  other  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ben, labels costguard:until=2099-01-01T00:00Z
  dated  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ben, labels costguard:until=2026-11-03T00:00Z
config
  [[policy]]
  name = "end-date"
  arm = "stop"
  match = { gpu = true, until_label = "passed" }
  then = [{ do = "notify" }, { after = "15m", do = "stop" }]
  [[policy]]
  name = "no-date"
  arm = "stop"
  match = { owners = ["ada"], until_label = "missing" }
  for = "1h"
  then = [{ do = "notify" }, { after = "30m", do = "stop" }]
events
  08:00  box busy
  08:00  other busy
  08:00  dated busy
expect
  08:00  notice until box saying "write 2026-12-01T18:00Z"
  08:00  notice until other saying "more than 7 d ahead"
  never notice until dated
  09:00  notice no-date box saying "tomorrow evening"
  09:30  stop box
  once act
