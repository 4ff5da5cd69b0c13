title: The agent that rented a machine died, and the date on the machine ends it although the machine works
hazard: GUARD 2 limit rules fail closed, and H24: told before the date, stopped after it, without evidence of idleness
start: 2026-11-02 08:00
end: 11:00
machines
  box    aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, labels costguard:until=2026-11-02T15:30+05:30
  other  gcp 1xL4 $0.7068, owner ada, labels costguard-until=2026-11-02t12-00z
config
  [[policy]]
  name = "end-date"
  arm = "stop"
  match = { gpu = true, until_label = "passed" }
  then = [{ do = "notify" }, { after = "15m", do = "stop" }]
events
  08:00  box busy
  08:00  other busy
expect
  08:00-09:44  never notice end-date
  09:45  notice end-date box saying "2026-11-02T15:30+05:30"
  08:00-09:59  never act
  10:00  stop box
  once act
