title: A date that is renewed after its notice ends the machine at the new date, after a new notice
hazard: GUARD 2 limit rules fail closed, and H24: a renewal counts, and a whole notice comes before the new date
start: 2026-11-02 08:00
end: 12:30
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, labels costguard:until=2026-11-02T10:00Z
config
  [[policy]]
  name = "end-date"
  arm = "stop"
  match = { gpu = true, until_label = "passed" }
  then = [{ do = "notify" }, { after = "15m", do = "stop" }]
events
  08:00     box busy
  09:59:59  box label costguard:until=2026-11-02T12:00Z
expect
  09:45  notice end-date box
  08:00-11:59  never act
  11:45  notice end-date box saying "2026-11-02T12:00Z"
  12:00  stop box
  once act
