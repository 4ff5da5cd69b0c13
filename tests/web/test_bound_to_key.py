"""A machine named like the key or id of one that is gone receives none of its acts, over each way in; nothing is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import costguard
from costguard.data import ShippedFacts
from costguard.errors import CostguardError, InputError
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.ask_links import AskLinkStore
from costguard.ledger.guard.guard_state import load_overrides_since
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.mcp.tools import McpContext, call_tool
from costguard.metering.inventory import Complete, Poll
from costguard.services.guarding.ask_links import answer_ask
from costguard.services.guarding.overrides import get_now
from costguard.services.serving.door_messages import ActOffer
from costguard.services.serving.person_acts import ACTS
from costguard.values.ask_link import AskLink
from costguard.values.resource import ENDED, Incarnation, ResourceKey, format_life
from tests.cli.test_stop import Lab, lab
from tests.cli.test_stop_clouds import refuse_all
from tests.web.test_page_stops import Desk, whole

__all__ = ["lab"]
GONE = "has ended; nothing was done"
Way = Callable[[Lab, ResourceKey | str, pytest.MonkeyPatch], object]


def write(key: ResourceKey | str) -> str:
    return key if isinstance(key, str) else key.path


def page(do: str) -> Way:
    def act(_lab: Lab, key: ResourceKey | str, _patch: pytest.MonkeyPatch) -> object:
        return ACTS[do](ActOffer("", do, write(key), "4h", "x"), "costguard.toml")

    return act


def stop_on_page(lab: Lab, key: ResourceKey | str, _patch: pytest.MonkeyPatch) -> object:
    desk = Desk(lab)
    desk.open("admin").act(write(key), "stop", why="x", sure="yes")
    reply = desk.link.stops.answer(desk.link.offers[-1])
    assert not reply.done
    raise InputError(" ".join(reply.lines))


def link(*, approve: bool) -> Way:
    def answer(lab: Lab, key: ResourceKey | str, patch: pytest.MonkeyPatch) -> object:
        at = datetime.now(UTC)
        assert isinstance(key, ResourceKey)
        asked = AskLink(
            hash="", addressee="ada", policy="p", key=key, act="stop", episode="e", at=at, expires_at=at + timedelta(hours=1)
        )
        patch.setattr(AskLinkStore, "find", lambda *_: (asked, Incarnation(key, None)))
        return answer_ask("0", approve=approve, url=lab.ledger, config="costguard.toml", now=at)

    return answer


def tool(name: str, **more: str) -> Way:
    def call(lab: Lab, key: ResourceKey | str, _patch: pytest.MonkeyPatch) -> object:
        assert lab.run("mcp", "arm", "--why", "tests").code == 0
        reply = call_tool(name, {"machine": write(key), "why": "x", **more}, McpContext(config="costguard.toml"))
        assert reply.is_error
        raise InputError(" ".join(map(str, reply.more["error"])))  # type: ignore[call-overload]  # its lines

    return call


def command(*words: str) -> Way:
    def run(lab: Lab, key: ResourceKey | str, _patch: pytest.MonkeyPatch) -> object:
        ran = lab.run(words[0], write(key), *words[1:])
        assert ran.code == 2, ran.out
        raise InputError(" ".join(ran.err.split()))

    return run


def keep(_lab: Lab, key: ResourceKey | str, _patch: pytest.MonkeyPatch) -> object:
    return costguard.keep(key, length="4h", why="x")


def stop(_lab: Lab, key: ResourceKey | str, _patch: pytest.MonkeyPatch) -> object:
    return costguard.stop(write(key), yes=True)


def start(_lab: Lab, key: ResourceKey | str, _patch: pytest.MonkeyPatch) -> object:
    return costguard.start(write(key), ask=lambda _: True)


WAYS: dict[str, Way] = {
    **{f"page {do}": page(do) for do in ("approve-stop", "approve-terminate", "protect", "keep", "snooze", "unkeep")},
    "page stop": stop_on_page,
    "link approve": link(approve=True),
    "link deny": link(approve=False),
    "mcp keep": tool("keep", **{"for": "2h"}),
    "mcp stop": tool("stop"),
    "python keep": keep,
    "python stop": stop,
    "python start": start,
    "command approve": command("approve", "terminate"),
    "command protect": command("protect"),
    "command keep": command("keep", "--for", "4h", "--why", "x"),
    "command snooze": command("snooze", "--for", "4h"),
    "command stop": command("stop", "--yes"),
    "command terminate": command("terminate", "--yes"),
    "command start": command("start", "--yes"),
}


def list_machine_overrides(lab: Lab) -> list[str]:
    with LedgerReader(lab.ledger) as reader, reader.snapshot() as ask:
        return [one.what for one in load_overrides_since(ask, datetime.now(UTC) - timedelta(hours=1)) if one.key]


@pytest.fixture
def gone(lab: Lab) -> ResourceKey:
    """The key of a pod that has ended; the other pod has this key as its name, and a third pod has its id."""
    rules = ShippedFacts().get_billing_rules()
    with SpendingReader(lab.ledger, rules=rules) as books:
        pods = [one for one in books.load_live(get_now()) if one.scope.provider == "runpod"]
    at, scope = get_now(), pods[0].scope
    first, second = (one.observation for one in pods)
    third = replace(second, key=second.key._replace(id="k3v9x2m0000009"), name=first.key.id)
    seen = (replace(first, state=ENDED, stopped_at=at), replace(second, name=first.key.path), third)
    with LedgerWriter(lab.ledger, rules=rules, ceilings={}) as ledger:
        ledger.record_polls([Poll(scope=scope, at=at, inventory=Complete(seen))])
    return first.key


@pytest.mark.parametrize("channel", ["page", "link", "mcp", "python", "command"])
def test_an_act_on_a_machine_that_is_gone_is_not_done_to_one_of_that_name(
    channel: str, lab: Lab, gone: ResourceKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    for way in (one for name, one in WAYS.items() if name.startswith(f"{channel} ")):
        with pytest.raises(CostguardError, match=GONE) as told:
            way(lab, gone, monkeypatch)
        assert gone.path in str(told.value)
    assert list_machine_overrides(lab) == []
    assert lab.stops == 0


def test_the_id_of_a_machine_that_is_gone_is_no_name_of_another(lab: Lab, gone: ResourceKey) -> None:
    for words in (("approve", gone.id, "stop"), ("protect", gone.id), ("stop", gone.id, "--yes")):
        ran = lab.run(*words)
        assert (ran.code, "matches 2 resources" in ran.err) == (2, True), ran.err
        assert gone.path in ran.err
    assert list_machine_overrides(lab) == []
    assert lab.stops == 0


def test_names_ids_and_prefixes_are_for_people_at_a_terminal(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for way in ("page keep", "page approve-stop", "mcp keep", "mcp stop", "python keep", "python stop"):
        for word in ("train-k3v9x2m0000000", "k3v9x2m0000000", "k3v9x"):
            with pytest.raises(InputError, match="is not the full key of a machine"):
                WAYS[way](lab, word, monkeypatch)
    assert list_machine_overrides(lab) == []


@pytest.mark.parametrize("do", ["approve-terminate", "stop"])
def test_a_page_that_showed_an_earlier_run_approves_and_stops_nothing(do: str, lab: Lab) -> None:
    desk, path = Desk(lab), whole(lab.pod())
    reader = desk.open("admin")
    _, shown = reader.act(path, do, why="x")
    life = shown.partition('name="life" value="')[2].partition('"')[0]
    assert life
    _, page = reader.act(path, do, why="x", sure="yes", life=format_life(Incarnation(ResourceKey(*path.split("/")), get_now())))
    assert "was restarted, and this was for its earlier run" in page
    assert (list_machine_overrides(lab), lab.stops) == ([], 0)
    reader.act(path, do, why="x", sure="yes", life=life)
    assert (len(list_machine_overrides(lab)), lab.stops) == ((1, 0) if do != "stop" else (0, 1))


def test_a_stop_of_a_form_without_a_key_is_refused_by_the_watchdog(lab: Lab) -> None:
    desk, path = Desk(lab), whole(lab.pod())
    desk.open("admin").act(path, "stop", why="x", sure="yes")
    offer = desk.link.offers[-1]
    reply = desk.link.stops.answer(ActOffer(offer.secret, "stop", "train-k3v9x2m0000000"))
    assert (reply.done, "is not the full key" in reply.lines[0]) == (False, True)


def test_a_name_at_a_terminal_is_shown_with_its_key_before_it_is_approved(lab: Lab) -> None:
    from costguard.services.guarding.overrides import approve_action

    asked = list[str]()
    key, name = "runpod/default/global/k3v9x2m0000000", "train-k3v9x2m0000000"
    refused = approve_action(name, "terminate", config="costguard.toml", ask=refuse_all(asked))
    assert asked == [f"Approve terminate of {name} ({key})?"]
    assert refused.document.lead == ("Not approved: nothing was recorded.",)
    assert list_machine_overrides(lab) == []
    approve_action(key, "terminate", config="costguard.toml", ask=refuse_all(asked))
    assert (len(asked), list_machine_overrides(lab)) == (1, ["approve"])
    ran = lab.run("approve", name, "stop")
    assert f"Approved: stop of {name} ({key})" in ran.out
