"""What the settings file as costguard writes it says of the guard: policies, hooks, rails and notices, all switched off."""

from __future__ import annotations

GUARD_EXAMPLE = """
# Policies: any number of them. `costguard plan` says what each would do now, and why not.
# arm: how far it may go. observe (nothing, and says what it would do), notify, stop, terminate. 90 days after the guard first
# saw it, it falls back to notify until `costguard policy arm NAME LEVEL`.
# match: whom it concerns; left out: everything. All of a budget's, and gpu = true, ids, and names such as "train-*".
# when: what must hold. Facts, && || ! and brackets, == != < <= > >=, in; text in quotes, 0.9, duration("45m"), usd(12.50),
# usd_per_hour(0.30). A missing fact makes it unknown, which is no reason to act.
# for: how long it must hold first. then: step by step; `after` counts from the first one. do: record, notify, ask, hook, deny,
# scale-controller, stop, terminate. A stop comes 5 minutes after a notice or later.
# needs: signals that must be measured (duty, power, cpu, io, progress, queue, people, agent); left out: all there are.
# allow_irreversible = true: it may lose data for good. priority: at a hard cap the lowest is stopped first.
# lease: how long somebody may keep a machine from it, and how often again. warmup: how long a machine may be set up.
# alone = true: each member of a group (see group_from) is judged by itself, whatever the others do.
# schedule: when it should be off; a policy that has one needs no `when`. holidays: off all day. rule: "idle" (doubt keeps it
# running) or "schedule" (a desired state); usually what fits.
#[[policy]]
#name = "idle-gpu"
#arm = "notify"
#match = { gpu = true, names = ["train-*"], ids = ["i-0abc"], providers = ["aws"] }
#when = 'state == "idle" && confidence >= 0.9 && rate >= usd_per_hour(0.30)'
#for = "45m"
#needs = ["duty", "cpu"]
#allow_irreversible = false
#priority = 0
#lease = { max = "24h", renewals = 3 }
#warmup = "45m"
#alone = false
#rule = "idle"
#schedule = { timezone = "Europe/Berlin", off = ["mon-fri 20:00-08:00", "sat-sun"], holidays = [2026-12-25], exemptions = [] }
#then = [
#{ do = "notify", to = "owner", severity = "warning" },
#{ after = "15m", do = "hook", run = "checkpoint", timeout = "5m" },
#{ after = "15m", do = "stop" },
#{ after = "7d", do = "ask", act = "terminate" },
#]

# Hooks: what a step may run. command: a program and its arguments, without a shell; or url: asked by POST. It is told what,
# whose, why and when (JSON; COSTGUARD_* variables) and runs for at most `timeout`; the stop after it waits for its end, and for
# 5 minutes more where it fails, which people are told. env: variables of ours that a command gets; no key and no secret else.
#[[hook]]
#name = "checkpoint"
#command = ["/usr/local/bin/save-checkpoint"]
#env = ["AWS_PROFILE"]
#[[hook]]
#name = "drain"
#url = "https://example.com/drain"

# Rails hold whatever every policy says. acts: how many stops there may be in a run and in 10 minutes, which share of the fleet
# in 10 minutes and in a day (at least one), how many that lose data in an hour.
# breaker: once this share of the fleet (and so many) turns idle or unknown within the window, idle acts freeze until so long
# after it is over. first_seen: no act on what was seen for less.
#[rails]
#acts = { per_run = 1, per_10m = 3, fleet_percent = 10, fleet_percent_day = 20, irreversible_per_h = 1 }
#breaker = { percent = 25, least = 5, window = "10m", recovery = "30m" }
#first_seen = "15m"

# Notices. signed_with: where the secret is kept that webhooks are signed with. mail: where the address of the server is kept
# that mail to a person goes through (mailtos://USER:PASSWORD@HOST?from=ADDRESS), for [[report]] and `report --email`.
#[notify]
#signed_with = "env:COSTGUARD_WEBHOOK_SECRET"
#mail = "env:MAIL_URL"
# Routes: any number of them; without one the terminal is told. to: "console", the https:// address of a webhook, or where an
# address is kept that is secret: "env:NAME" or "file:PATH" of slack://..., mailto://..., ntfy://..., all that Apprise knows.
# group_by: owner, policy, topic, subject. repeat: after the first message, the last one again and again; [] never.
# min_severity: info, warning, page. match: owners, policies by their names, topics such as "budget:*", audience
# (owner, admin: the `to` of a step); left out: all. What is for nobody in particular goes everywhere.
#[[notify.route]]
#to = ["env:SLACK_URL", "console"]
#name = "team"
#group_by = ["owner", "policy"]
#repeat = ["4h", "24h", "7d"]
#min_severity = "info"
#match = { owners = ["alice"], policies = ["idle-gpu"], topics = ["budget:*"], audience = ["owner"] }

# Reports that `costguard watch` sends: any number of them. every: "day", "week" (from Monday) or "month", of [defaults]
# timezone, each reported at `at` on the first day after it. to: people by their mail, routes by their names, or channels as
# above. name: usually what `every` says; under it is kept what was sent. by: as `report --by`. format: what is enclosed where
# a channel takes files; a webhook gets JSON.
#[[report]]
#name = "month"
#every = "month"
#at = "08:00"
#to = ["lead@lab.org", "team"]
#by = ["provider", "owner"]
#format = "html"
"""
