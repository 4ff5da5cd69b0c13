title: A machine that costs fifty dollars a day is stopped, and the day after it counts anew
hazard: GUARD 3 spent (run, day, month); GUARD 1 budgets that say no a day late
start: 2026-11-02 09:30
end: 2026-11-02 12:00
zone: Europe/Berlin
machines
  box    aws 8xA100-80GB-SXM $32.77, owner ada, age 30m
  small  runpod H100-80GB-SXM $2.99, owner ada, age 30m
policies
  dear-day  arm stop, when 'spent_day >= usd(50.00)', notify, +10m stop
events
  09:30  box quiet
  09:30  small quiet
expect
  10:30-10:36  notice dear-day box   # 50 / 32.77 h after 09:00, and what is sure lags a little
  10:40-10:47  stop box
  once stop box
  never stop small
