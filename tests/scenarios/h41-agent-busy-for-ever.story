title: A phase declared again and again outlasts no hard cap
hazard: H41 fake agent "busy"
start: 2026-11-02 00:00
end: 02:10
machines
  box  aws 8xA100-80GB-SXM $32.77, owner ada, age 1m, stops-in 60s
budgets
  all  $60 day, hard
events
  00:00  box busy
  00:10  phase train box for 1h why "says its agent"
  01:00  phase train box for 2h why "says its agent"
expect
  00:00-01:20  never stop box
  once stop box                      # 60 / 32.77 h is 1 h 50 min
  all spent at most $60.00
