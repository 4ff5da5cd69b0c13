"""Values that a shell completes: models, GPUs, providers, machines, policies, budgets.

Names come from shipped files, the settings and the ledger; no cloud is asked. What cannot be read completes nothing: a shell
shows errors between the words that somebody types. A machine's name is given by the people who rent it, and a shell runs what
it is given, so that only names of plain characters are offered; of others, and of names that two machines have, the id is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from costguard.errors import CostguardError

Complete = Callable[[Any, list[str], str], list[str]]
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@/:-]{0,99}")
"""No blank, quote, `$` or `;`."""


def complete_names(kind: str) -> Complete:
    """Return what completes a value of `kind`, of SOURCES."""

    def complete(ctx: Any, args: list[str], incomplete: str) -> list[str]:  # noqa: ANN401 - typer's, by name
        try:
            names = SOURCES[kind](ctx.find_root().params.get("config"))
        except CostguardError:
            return []
        folded = incomplete.casefold()
        return sorted({one for one in names if one.casefold().startswith(folded) and PLAIN_NAME.fullmatch(one)})

    return complete


def _list_models(config: str | None) -> Iterable[str]:
    from costguard.data import ShippedFacts

    return ShippedFacts().list_models()


def _list_gpus(config: str | None) -> Iterable[str]:
    from costguard.data import ShippedFacts

    return ShippedFacts().get_gpus()


def _list_templates(config: str | None) -> Iterable[str]:
    from costguard.data import ShippedFacts

    return ShippedFacts().templates()


def _list_providers(config: str | None) -> Iterable[str]:
    from costguard.providers.plugins import PROVIDER_GROUP
    from costguard.sizing.job_flags import PROVIDER_NAMES
    from costguard.system.process import list_entry_points

    return (*list_entry_points(PROVIDER_GROUP).names, *PROVIDER_NAMES.values())


def _list_machines(config: str | None) -> Iterable[str]:
    from costguard.services.report.ledger_answers import get_now, open_books
    from costguard.settings import read_settings

    with open_books(read_settings(config)) as books:
        machines = [(one.observation.name, one.observation.key.id) for one in books.load_live(get_now())]
    counts = Counter(name for name, _ in machines)
    return [name if counts[name] == 1 and PLAIN_NAME.fullmatch(name) else id_ for name, id_ in machines]


def _list_policies(config: str | None) -> Iterable[str]:
    from costguard.settings import read_settings

    settings = read_settings(config)
    return (*(one.name for one in settings.policies), *(f"budget:{one.name}" for one in settings.budgets))


def _list_choices(flag: str, config: str | None) -> Iterable[str]:
    from costguard.sizing.job_flags import CHOICES

    return CHOICES[flag]


SOURCES: dict[str, Callable[[str | None], Iterable[str]]] = {
    "model": _list_models,
    "gpu": _list_gpus,
    "template": _list_templates,
    "provider": _list_providers,
    "machine": _list_machines,
    "policy": _list_policies,
    **{flag: partial(_list_choices, flag) for flag in ("method", "precision", "quant", "optimizer", "checkpointing", "tier")},
}
