"""What a quote says in words: the option to take, one line of caveats, and with `--why` a line for each of them.

Example: `Take: runpod A100-80GB (secure), $5.51 (4.01-7.83), about 4.6 h, price 19 d old. Cheaper if still true: vast RTX-4090
(secure), $3.20, price 40 d old.`
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from costguard.quoting.offer import Subscription
from costguard.quoting.quote import (
    NOT_RANKED,
    Quote,
    QuoteOption,
    QuoteRefusal,
    Rental,
    choose_option,
    explain_price_age,
    explain_uncertainty,
    find_cheaper_option,
)
from costguard.quoting.storage import compute_job_disk_gb
from costguard.sizing.job import Job
from costguard.values.resource import SPOT
from costguard.values.text_format import format_amount, is_wide
from costguard.views.document import TableView
from costguard.views.job import format_gpus, format_hours, format_hours_range

REFUSALS_SHOWN = 6
IN_BRACKETS = re.compile(r" \([^()]*\)")
"""What each assumption changes: `--why` says it."""


def list_choices(quote: Quote) -> tuple[str, ...]:
    """Return the line that names the option to take, and one that is cheaper on a condition; empty where nothing has a cost."""
    option = choose_option(quote.options)
    if option is None:
        return ()
    cheaper = find_cheaper_option(quote.options, option)
    other = f" {_name_choice('Cheaper', cheaper, ends=False)}." if cheaper else ""
    return (f"{_name_choice('Take', option, ends=True)}.{other}",)


def _name_choice(word: str, option: QuoteOption, *, ends: bool) -> str:
    """Return `Take if still true: oci B300 x8 (on-demand), $23.33 (11.33-66.90), about 12 min, price 51 d old`."""
    offer, usd = option.offer, option.usd
    if offer is None or usd is None or option.price is None or option.hours is None:
        return word
    conditions = ["still true"] * (not option.price.fresh)
    conditions += ["it fits"] * option.is_doubtful
    conditions += ["interruptions are acceptable"] * (offer.tier == SPOT)
    interval = f" ({format_amount(usd.low)}-{format_amount(usd.high)})" if ends and usd.low != usd.high and is_wide(usd) else ""
    lasts = " a month" if option.serving else f", about {format_hours(option.hours.expected)}" if ends else ""
    days = option.price.age_days
    age = f"price {days} d old" if days >= 0 else f"price dated {-days} d ahead"
    gpus = format_gpus(option) if option.gpu_count > 1 else format_gpus(option).replace(" x1", "", 1)
    condition = f" if {' and '.join(conditions)}" if conditions else ""
    return f"{word}{condition}: {offer.provider} {gpus} ({offer.tier}), ${format_amount(usd.expected)}{interval}{lasts}, {age}"


def list_notes(
    quote: Quote, shown: tuple[QuoteOption, ...], *, brief: bool, plans: tuple[Subscription, ...]
) -> tuple[str, ...]:
    """Return what to know beside the table; `brief`: in one line, which says how to see the rest.

    `plans`: subscriptions that no table shows.
    """
    return (_build_caveats(quote, shown, plans),) if brief else tuple(_list_all_notes(quote, shown, plans))


def _build_caveats(quote: Quote, shown: tuple[QuoteOption, ...], plans: tuple[Subscription, ...]) -> str:
    """Return one line with what was assumed, what is old, what was left out, and the flags that say more."""
    chosen = choose_option(quote.options) or next(iter(shown), None)
    caveats = [IN_BRACKETS.sub("", one) if one.startswith("assumed") else one for one in quote.warnings]
    caveats += chosen.notes if chosen else ()
    stale = _count_stale(shown)
    caveats += [f"{stale.total()} of {len(shown)} prices are old ({', '.join(sorted(stale))})"] if stale else []
    unranked = Counter((r.offer or "").split(" ", 1)[0] for r in quote.refused if r.reason.startswith(NOT_RANKED))
    caveats += [f"{unranked.total()} more not ranked, with old or no prices ({', '.join(unranked)})"] if unranked else []
    caveats += [f"a disk of {_count_disk_gb(quote)} GB is included"] if chosen and chosen.storage_usd else []
    left_out = _join_left_out(quote, len(quote.options) - len(shown), plans)
    flags = [f"--all shows {left_out}"] if left_out else []
    flags += ["costguard prices refresh asks for today's prices"] if _is_refresh_due(quote) else []
    text = "; ".join(caveats)
    return f"{text[:1].upper()}{text[1:]}{'. ' if text else ''}{'; '.join(('--why says more', *flags))}."


def _count_disk_gb(quote: Quote) -> int:
    return quote.asked.disk_gb if isinstance(quote.asked, Rental) else compute_job_disk_gb(quote.asked)


def _list_all_notes(quote: Quote, shown: tuple[QuoteOption, ...], plans: tuple[Subscription, ...]) -> Iterable[str]:
    left_out = _join_left_out(replace(quote, refused=()), len(quote.options) - len(shown), plans)
    yield from [f"{left_out}: --all shows them."] if left_out else []
    yield from _list_refusals(quote.refused)
    first = next((o for o in shown if o.usd), None)
    if not isinstance(quote.asked, Rental) and quote.asked.serving is not None:
        from costguard.views.serving import list_serving_notes

        yield from list_serving_notes(shown[0] if shown else None)
    most = explain_uncertainty(first) if first else None
    yield from [f"Of the assumptions, {most}."] if most else []
    if first and first.storage_usd:
        usd = format_amount(first.storage_usd.expected)
        yield f"The cost includes a disk of {_count_disk_gb(quote)} GB for the run (${usd} for the first option)."
    for option in shown[:1]:
        yield from _explain_batch(quote.asked, option)
        yield from (f"First option: {n}." for n in option.notes)
        if option.host_gib is not None:
            needs = f"{option.disk_gb} GB of disk and {option.host_gib:.0f} GiB of host memory"
            yield f"Each machine needs about {needs} (the weights once, 4 GiB a process, and what is offloaded)."
    unranked = [r for r in quote.refused if r.reason.startswith(NOT_RANKED)]
    yield from (f"{r.offer}: {r.reason}." for r in unranked[:REFUSALS_SHOWN])
    if len(unranked) > REFUSALS_SHOWN:
        yield f"{len(unranked) - REFUSALS_SHOWN} more such offers are not ranked."
    yield from (f"Warning: {w}." for w in (*quote.warnings, *list_stale_warnings(shown)))
    yield from ["next: costguard prices refresh asks for today's prices."] if _is_refresh_due(quote) else []


def _explain_batch(request: Job | Rental, option: QuoteOption) -> Iterable[str]:
    """Yield how many examples a step of `option` has in all: each GPU's, times the copies of the model, times the passes."""
    place = option.placement
    if place is None or isinstance(request, Rental) or not request.recipe.trains:
        return
    each, copies = place.recipe.micro_batch, place.parallel.count_data_ranks(place.gpus)
    passes = place.recipe.gradient_accumulation
    counts = f"{each} (micro_batch) x {copies} (GPUs over tp x pp x cp) x {passes} (accumulation)"
    yield f"First option: a step has {each * copies * passes:,} examples, the effective batch: {counts}."


def _is_refresh_due(quote: Quote) -> bool:
    """Return whether today's prices might rank another option first."""
    first = next((o for o in quote.options if o.price), None)
    old = any(r.reason.startswith(NOT_RANKED) for r in quote.refused)
    return old if first is None or first.price is None else not first.price.fresh


def _join_left_out(quote: Quote, hidden: int, plans: tuple[Subscription, ...]) -> str:
    """Return what `--all` would add: `311 more options (15 providers), 76 refused`; "" if nothing was left out."""
    providers = len({o.offer.provider for o in quote.options if o.offer})
    parts = [f"{hidden} more options ({providers} provider{'s' if providers > 1 else ''})"] if hidden else []
    parts += [f"{len(quote.refused)} refused"] if quote.refused else []
    parts += ["subscriptions"] if list_plan_tables(plans, quote) else []
    return ", ".join(parts)


def _list_refusals(refused: tuple[QuoteRefusal, ...]) -> list[str]:
    """Return a line with the refusals closest to fitting and the number of all refusals; empty if there are none."""
    if not refused:
        return []
    nearest = sorted(refused, key=lambda r: (r.needs_gib or 1e9) / (r.has_gib or 1))[:REFUSALS_SHOWN]
    refusals = "; ".join(f"{r.offer or f'{r.gpu} x{r.gpu_count}'} {r.reason}" for r in nearest)
    return [f"Refused {len(refused)}: {refusals}{' ...' if len(refused) > len(nearest) else ''}."]


def _count_stale(shown: tuple[QuoteOption, ...]) -> Counter[str]:
    return Counter(o.offer.provider for o in shown if o.offer and o.price and not o.price.fresh)


def list_stale_warnings(shown: tuple[QuoteOption, ...]) -> list[str]:
    """Return how many shown prices are past their time to live, what that may mean in money, and what to do about it."""
    stale = _count_stale(shown)
    if not stale:
        return []
    what = f"{stale.total()} of {len(shown)} prices shown are older than their time to live ({', '.join(sorted(stale))})"
    why = next(filter(None, (explain_price_age(o) for o in shown if o.price and not o.price.fresh)), None)
    return [f"{what}; the first of them {why}" if why else what]


def list_plan_tables(plans: tuple[Subscription, ...], quote: Quote) -> tuple[TableView, ...]:
    """Return a table with one row per GPU that some plan may provide.

    A row has the units that the run needs of a paid plan, and the plans; free ones last.
    """
    rows = []
    for gpu in dict.fromkeys(p.gpu for p in plans):
        same = sorted((p for p in plans if p.gpu == gpu), key=lambda p: not p.units)
        option = find_plan_option(same[0], quote)
        if option is None or option.hours is None:
            continue
        needs = same[0].compute_units(option.hours)
        prices = {p: f" ${p.price.format()} for {p.units}" if p.units else "" for p in same}
        names = (f"{p.plan}{price}, sessions of {p.session_hours:g} h" for p, price in prices.items())
        rows.append(
            (same[0].provider, gpu, format_hours_range(option.hours), f"{needs.low:.0f} - {needs.high:.0f}", "; ".join(names))
        )
    title = "Subscriptions: not ranked, because a plan does not guarantee a GPU"
    view = TableView(title=title, columns=("", "GPU", "hours", "units needed>", "plans"), rows=tuple(rows))
    return (view,) if rows else ()


def find_plan_option(plan: Subscription, quote: Quote) -> QuoteOption | None:
    """Return the fastest option with one GPU of the plan's kind, from any provider; it provides the hours."""
    same = [o for o in quote.options if o.gpu.name == plan.gpu and o.gpu_count == 1 and o.nodes == 1 and o.hours]
    return min(same, key=lambda o: o.hours.expected if o.hours else 0.0, default=None)
