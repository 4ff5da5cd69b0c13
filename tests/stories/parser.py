"""Stories as text, so that a story is a test in ten lines:

    title: Forgotten weekend
    hazard: GUARD 1 kept alive for weeks, H10
    start: 2026-11-06 16:00                 # a Friday; also: zone: Europe/Berlin, poll: 60s, end: Mon 09:00
    end: 20:00
    machines
      box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
    policies
      idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
    events
      16:00  box busy
      18:05  box quiet
    expect
      18:50  notice idle-gpu box
      19:05  stop box

Sections: machines, clouds, policies, budgets, config (TOML as costguard reads it), events, expect. What a section may say
stands in `casting`, `configuring`, `happening` and `expecting`. A bare time is of the day of the line before it in its section;
`Fri 18:05` (the first Friday from that day on), `day 7 10:00`, `2026-11-07 10:00` and `+45m` are moments, too, and
`22:00-02:00` is a stretch. `#` begins a comment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from costguard.errors import InputError
from costguard.values.checks import find_nearest_names
from tests.stories.events import parse_event, parse_expectation
from tests.stories.setup import build_budget_toml, build_policy_toml, parse_cloud, parse_machine
from tests.stories.story import Story, StoryEvent, StoryMachine
from tests.stories.tokens import MomentReader, build_line_error, parse_duration

HEADS = ("title", "hazard", "start", "end", "zone", "poll")
SECTIONS = ("machines", "clouds", "policies", "budgets", "config", "events", "expect")
_HEAD = re.compile(r"(\w+):\s*(.*)")
_COMMENT = re.compile(r'^((?:"[^"]*"|\'[^\']*\'|[^#"\'])*?)(?:(?<!\S)#.*)?$')

NumberedLines = list[tuple[int, str]]


@dataclass(slots=True)
class _StoryText:
    """The lines of a story by heading and section, with their numbers."""

    heads: dict[str, tuple[int, str]] = field(default_factory=dict)
    sections: dict[str, NumberedLines] = field(default_factory=dict)


def read_story(path: Path) -> Story:
    """The story in a file; errors name the file and the line."""
    try:
        return parse_story(path.read_text(encoding="utf-8"), source=path.name)
    except InputError as error:
        raise InputError(error.what, field=f"{path.name} {error.field or ''}".strip(), hint=error.hint) from error


def parse_story(text: str, *, source: str = "") -> Story:
    """The story that `text` tells. InputError that names the line of what cannot be read."""
    found = _split_sections(text)
    start, end, zone = _parse_times(found.heads)
    machines = tuple(parse_machine(said, line) for line, said in found.sections.get("machines", []))
    _reject_duplicates(machines)
    names, providers = [one.name for one in machines], {one.provider for one in machines}
    happening, expected = (MomentReader(start, zone, start) for _ in range(2))
    events = [parse_event(said, line, happening, names, providers) for line, said in found.sections.get("events", [])]
    expectations = tuple(parse_expectation(said, line, expected, names) for line, said in found.sections.get("expect", []))
    placed = [*((one.at, one.line) for one in events), *((one.at, one.line) for one in expectations)]
    for at, line in placed:
        if at is not None and not start <= at <= end:
            raise build_line_error(
                line, f"{at.astimezone(zone):%a %d %b %H:%M} lies outside the story", "mind its start and its end"
            )
    config = [build_policy_toml(said, line) for line, said in found.sections.get("policies", [])]
    config += [build_budget_toml(said, line) for line, said in found.sections.get("budgets", [])]
    config += [said for _, said in found.sections.get("config", [])]
    _reject_unknown_replacements(events, machines)
    return Story(
        title=found.heads["title"][1],
        hazard=found.heads["hazard"][1],
        start=start,
        end=end,
        zone=zone,
        poll=parse_duration(found.heads.get("poll", (0, "60s"))[1], found.heads.get("poll", (0, ""))[0]),
        cast=machines,
        clouds=tuple(parse_cloud(said, line) for line, said in found.sections.get("clouds", [])),
        config="\n".join(config),
        events=tuple(sorted(events, key=lambda one: one.at)),
        expectations=expectations,
        source=source,
    )


def _split_sections(text: str) -> _StoryText:
    found, section = _StoryText(), ""
    for line, raw in enumerate(text.splitlines(), 1):
        bare = raw if section == "config" and raw[:1].isspace() else _strip_comment(raw)
        if not bare.strip():
            continue
        if bare[0].isspace():
            if not section:
                raise build_line_error(line, "an indented line stands in no section", f"begin one: {', '.join(SECTIONS)}")
            found.sections[section].append((line, bare.strip()))
        elif bare.strip() in SECTIONS:
            section = bare.strip()
            found.sections.setdefault(section, [])
        elif head := _HEAD.fullmatch(bare.strip()):
            if head[1] not in HEADS:
                near = ", ".join(find_nearest_names(head[1], HEADS)) or ", ".join(HEADS)
                raise build_line_error(line, f"'{head[1]}' is not a heading", f"did you mean {near}?")
            found.heads[head[1]] = (line, head[2].strip())
        else:
            near = ", ".join(find_nearest_names(bare.strip(), SECTIONS)) or ", ".join(SECTIONS)
            raise build_line_error(line, f"'{bare.strip()}' is neither a heading nor a section", f"did you mean {near}?")
    for needed in ("title", "hazard", "start", "end"):
        if needed not in found.heads:
            raise InputError(f"has no {needed}", field="story", hint=f"write {needed}: ... at its top")
    return found


def _parse_times(heads: Mapping[str, tuple[int, str]]) -> tuple[datetime, datetime, tzinfo]:
    line, name = heads.get("zone", (0, "UTC"))
    try:
        zone: tzinfo = UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise build_line_error(line, f"there is no zone '{name}'", "write Europe/Berlin") from None
    line, said = heads["start"]
    try:
        start = datetime.fromisoformat(said).replace(tzinfo=zone).astimezone(UTC)
    except ValueError:
        raise build_line_error(line, f"'{said}' is not a start", "write 2026-11-06 16:00") from None
    line, said = heads["end"]
    end = MomentReader(start, zone, start).at(said, line)
    if not timedelta() < end - start <= timedelta(days=400):
        raise build_line_error(line, "the story has no time", "let it end after it starts")
    return start, end, zone


def _strip_comment(raw: str) -> str:
    found = _COMMENT.match(raw)
    return (found[1] if found else raw).rstrip()


def _reject_duplicates(machines: tuple[StoryMachine, ...]) -> None:
    seen = set[str]()
    for one in machines:
        if one.name in seen:
            raise build_line_error(one.line, f"there are two machines '{one.name}'", "give one another name")
        seen.add(one.name)


def _reject_unknown_replacements(events: list[StoryEvent], machines: tuple[StoryMachine, ...]) -> None:
    """Whoever replaces a machine is cast, and for later."""
    later = {one.name for one in machines if one.later}
    for event in events:
        if event.kind == "replaced" and event.text not in later:
            raise build_line_error(
                event.line, f"'{event.text}' is not cast for later", f"add it to machines: {event.text} ..., later"
            )
