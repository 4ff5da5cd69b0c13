title: A runaway agent asks for machines
hazard: GUARD 9.12; GUARD 1 budgets that say no a day late
start: 2026-11-02 08:00
end: 09:00
machines
  other  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
budgets
  agent  $6 day, match providers runpod
events
  08:00  other busy
  08:10  hold pod1 $2.99 by bot
  08:11  hold pod2 $2.99 by bot
  08:12  hold pod3 $2.99 by bot    # 8.97 > 6
  08:13  hold pod3 $2.99 by bot
expect
  08:10  answer ""
  08:11  answer ""
  08:12  refused "budget"
  08:13  refused "budget"
  08:12  warning denied:agent saying "bot"
  once notice denied:agent
  never resolved denied:agent
  never act
