title: A policy about spending spares what works, and a hard budget does not
hazard: GUARD 2 idle rules fail open, hard caps fail closed; GUARD 9.10
start: 2026-11-02 00:00
end: 06:30
machines
  box  aws 8xA100-80GB-SXM $32.77, owner ada, age 1m, stops-in 60s
policies
  dear-day  arm stop, when 'spent_day >= usd(50.00)', notify, +10m stop
budgets
  all  $200 day, hard
events
  00:00  box busy
expect
  01:30-01:37  notice dear-day box   # 50 / 32.77 h
  00:00-05:40  never stop box        # it works
  once stop box                      # 200 / 32.77 h is 6 h 6 min
  all spent at most $200.00
