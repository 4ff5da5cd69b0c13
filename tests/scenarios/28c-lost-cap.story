title: The second look before a hard cap's stop fails once, and the cap is kept
hazard: GUARD 2 hard caps fail closed; H29; issue 36
start: 2026-11-02 08:00
end: 13:00
machines
  box  aws 8xA100-80GB-SXM $32.77, owner ada, age 1m, stops-in 60s
budgets
  all  $60 month, hard
events
  08:00  box busy
  08:01  box look 2 fails
expect
  all spent at most $60.00
  once stop box
  once page all box                # one page that the cap acts on it
  12:59  box is stopped
