"""Hostile names, owners, labels and policies through every sink of the real commands: shown, and without any effect (H39).

They come from a provider into a real ledger, and are read from there. A terminal is `pyte`'s: what acts on
one leaves a trace in its state.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyte
import pytest
from rich.console import Console

from costguard.cli.watch_screen import draw_watch
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.observation import Observation, Price
from costguard.system import logs
from costguard.system.secret import Secret
from costguard.values.money import Rate
from costguard.values.resource import make_storable
from costguard.views.watch import WatchedNotice, list_changes
from tests.cli.test_watching_view import TRAIN, VIEW
from tests.conftest import Command
from tests.inputs.judging import contents
from tests.ledger.fleet import RULES, key, poll
from tests.notifiers.hostile import CORPUS
from tests.renderers.test_html import ATTRIBUTES, TAGS, Read

FORMATS = ("", "--json", "--csv", "--markdown")
COMMANDS = (("status",), ("report", "--by", "owner"), ("report", "--by", "team,project"), ("plan",), ("policy", "explain"))
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?")
PLAIN = [name for name in CORPUS if name == name.strip() != "" and name.isprintable() and len(name) <= 80]
POLICIES = PLAIN[::10]
"""Some of the names that the settings take: of plain characters."""
WIDTH, LINES, SHOWN = 400, 60, 20_000


def acts(text: str) -> set[str]:
    """The characters of `text` that a terminal would act on."""
    return {
        ascii(c)
        for c in text
        if c != "\n" and (not c.isprintable() or unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp"))
    }


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with a machine for each hostile string, whose name, owner and labels it is."""
    path = tmp_path_factory.mktemp("hostile") / "ledger.db"
    now = datetime.now(UTC).replace(microsecond=0)
    seen = [
        Observation(
            key=key(f"i-{number}"),
            state="running",
            name=text,
            gpu="H100-SXM",
            gpu_count=1,
            prices=(Price(Rate.parse("2")),),
            owner=text,
            labels=(("project", text), ("team", text)),
            why=text,
            started_at=now - timedelta(hours=1),
        )
        for number, text in enumerate(map(make_storable, CORPUS))
    ]
    with LedgerWriter(f"sqlite:///{path}", rules=RULES, ceilings={}) as ledger:
        for at in (now - timedelta(minutes=30), now):
            ledger.record_polls([replace(poll(0, *seen), at=at)])
    return path


@pytest.fixture
def folder(fleet: Path, tmp_path: Path) -> Path:
    """A folder with that ledger, and settings whose policies and budgets have hostile names."""
    (tmp_path / "ledger.db").write_bytes(fleet.read_bytes())
    parts = ['[ledger]\nurl = "sqlite:///ledger.db"\n']
    for name in {one.casefold(): one for one in POLICIES}.values():
        said = json.dumps(name, ensure_ascii=False)
        parts.append(f"""[[policy]]\nname = {said}\nwhen = 'power == "running"'\nthen = [{{ do = "record" }}]\n""")
        parts.append(f'[[budget]]\nname = {said}\ncap = "5 USD"\nmatch = {{ owners = [{said}] }}\n')
    (tmp_path / "costguard.toml").write_text("".join(parts))
    return tmp_path


@pytest.mark.sampled(5)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_format_of_every_answer_is_clean(costguard: Command, folder: Path, words: tuple[str, ...]) -> None:
    before = set(contents(folder))
    plain = _screen("")
    for form in FORMATS:
        ran = costguard("--offline", *words, *filter(None, (form,)))
        assert ran.code == 0, ran.err[:2000]
        assert acts(ran.err) == set()
        assert acts(ran.out) == set(), (words, form)
        if not form:
            assert _state(_screen(ran.out[:SHOWN])) == _state(plain)
        if form == "--json":
            json.loads(ran.out)
        elif form == "--csv":
            _is_safe_csv(ran.out)
        elif form == "--markdown":
            _is_safe_markdown(ran.out)
    assert {path for path in contents(folder) if not path.startswith("ledger.db")} <= before


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] != "policy"], ids=" ".join)
def test_the_page_of_every_answer_holds_names_as_text_only(costguard: Command, folder: Path, words: tuple[str, ...]) -> None:
    assert folder.is_dir()
    ran = costguard("--offline", *words, "--format", "html")
    assert ran.code == 0, ran.err[:2000]
    assert acts(ran.out) == set()
    read = Read(ran.out)
    assert set(read.tags) <= TAGS
    assert set(read.attributes) <= ATTRIBUTES


def _is_safe_csv(text: str) -> None:
    rows = list(csv.reader(io.StringIO(text), strict=True))
    assert len({len(row) for row in rows}) <= 1
    wrong = [cell for row in rows for cell in row if cell.startswith(FORMULA) and not NUMBER.fullmatch(cell)]
    assert wrong == []


def _is_safe_markdown(text: str) -> None:
    for line in text.split("\n"):
        outside = re.sub(r"`[^`]*`", "", re.sub(r"\\.", "", line))
        assert not re.search(r"<[a-zA-Z/!?]|[@#!]\w|://|www\.|`", outside), line[:200]
        if line.startswith("|"):
            assert line.endswith("|")
    tables = re.split(r"\n\n+", text)
    for table in tables:
        rows = [re.sub(r"\\.", "", row).count("|") for row in table.split("\n") if row.startswith("|")]
        assert len(set(rows)) <= 1


def test_the_json_of_a_status_says_each_name_as_it_is(costguard: Command, folder: Path) -> None:
    assert folder.is_dir()
    found = {one["id"]: one["name"] for one in costguard("--offline", "status", "--json").data["resources"]}
    assert len(found) == len(CORPUS) >= 200


def _screen(text: str) -> pyte.Screen:
    screen = pyte.Screen(WIDTH, LINES)
    stream = pyte.ByteStream(screen)
    screen.set_title("before")
    stream.feed(text.replace("\n", "\r\n").encode("utf-8", "replace"))
    return screen


def _state(screen: pyte.Screen) -> tuple[object, ...]:
    """All of a terminal that is not the letters on it and where the cursor is."""
    cursor = screen.cursor.attrs._replace(data="")
    return (
        screen.title,
        screen.icon_name,
        frozenset(screen.mode),
        screen.margins,
        screen.charset,
        screen.g0_charset,
        cursor,
        screen.cursor.hidden,
    )


def test_the_picture_of_a_watch_leaves_a_terminal_as_one_of_plain_names_does() -> None:
    plain = _state(_screen(_drawn("train-1")))
    for name in CORPUS[::3]:
        assert _state(_screen(_drawn(name))) == plain, ascii(name[:80])


def _drawn(name: str) -> str:
    evil = replace(TRAIN, name=name, owner=name, told=name, held_by=(name,))
    acts_ = tuple(replace(one, subject=name, why=name) for one in VIEW.acts)
    view = replace(
        VIEW,
        machines=(evil,),
        notices=(WatchedNotice(id=name, what=name),),
        acts=acts_,
        budgets=tuple(replace(one, name=name) for one in VIEW.budgets),
    )
    out = io.StringIO()
    Console(file=out, width=140, force_terminal=True, markup=False).print(draw_watch(view, 140))
    return out.getvalue()


def test_the_lines_of_a_watch_in_a_pipe_are_clean_and_as_many_as_there_are_facts() -> None:
    def lines(name: str) -> list[str]:
        evil = replace(TRAIN, name=name, owner=name, told=name, held_by=(name,))
        return list(
            list_changes(None, replace(VIEW, machines=(evil,), notices=(WatchedNotice(id=name, what=name),), frozen=name))
        )

    usual = len(lines("train-1"))
    for name in filter(None, CORPUS):
        told = lines(name)
        assert len(told) == usual, ascii(name[:80])
        assert acts("".join(told)) == set(), ascii(name[:80])


@pytest.mark.parametrize("as_json", [True, False])
def test_the_log_has_a_line_for_each_fact(as_json: bool) -> None:  # noqa: FBT001 - both ways
    import structlog

    out = io.StringIO()
    try:
        logs.configure_logging(as_json=as_json, secrets=(Secret("hunter2hunter2"),), stream=out)
        for name in CORPUS:
            logs.get_log().warning("held", instance_id=name, why=name, names=(name, {"owner": name}))
    finally:
        structlog.reset_defaults()
    told = out.getvalue().split("\n")[:-1]
    assert len(told) == len(CORPUS)
    assert acts("".join(told)) == set()
    if as_json:
        assert all(json.loads(line)["event"] == "held" for line in told)
