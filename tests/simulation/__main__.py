"""Worlds from the command line.

python -m tests.simulation run SEED... | replay FILE|SEED | plan SEED | crashes FILE|SEED | campaign
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.simulation.campaign import CHUNK, campaign, summed
from tests.simulation.caps import play_caps
from tests.simulation.drawing import crashing, plan_of
from tests.simulation.guide_world import list_guide_lines
from tests.simulation.outages import outages
from tests.simulation.papers import kept_plan, text_of
from tests.simulation.plans import Plan
from tests.simulation.playing import folder, played, world_of, wrong_with

KEPT = Path(__file__).parent / "kept"


def main(words: list[str] | None = None) -> int:  # noqa: PLR0911 - a table of commands
    """0 where nothing was that must not be, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="play the worlds of these seeds")
    run.add_argument("seeds", nargs="+", metavar="SEED", help="7, or wired:7")
    replay = commands.add_parser("replay", help="play one plan, and leave what it wrote in a folder")
    replay.add_argument("plan", metavar="FILE|SEED")
    replay.add_argument("--folder", type=Path, help="where clouds.jsonl and ledger.db are to lie: a new folder")
    plan = commands.add_parser("plan", help="print the plan of a seed as JSON")
    plan.add_argument("plan", metavar="SEED")
    crashes = commands.add_parser("crashes", help="play one plan once for each of its commits, ended right after it")
    crashes.add_argument("plan", metavar="FILE|SEED")
    crashes.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth of them")
    many = commands.add_parser(
        "campaign", help="play many worlds, a line of a log for each chunk; goes on where it was cut off"
    )
    many.add_argument("--worlds", type=int, required=True)
    many.add_argument("--from", type=int, default=0, dest="first", metavar="SEED")
    many.add_argument("--kind", default="", help="wired: worlds of costguard's own adapters over the fakes")
    many.add_argument("--jobs", type=int, default=2)
    many.add_argument("--chunk", type=int, default=CHUNK)
    many.add_argument("--log", type=Path, default=Path(__file__).parent / "campaign.jsonl")
    out = commands.add_parser("outages", help="a day without each of five providers, each pair and all, out in each way")
    out.add_argument("--only", default="", metavar="WORDS", help="days whose names hold this: 'aws down'")
    out.add_argument("--tick", type=int, default=4, metavar="MINUTES", help="between two polls")
    out.add_argument("--jobs", type=int, default=2)
    cap = commands.add_parser(
        "caps", help="forty fleets under hard caps: exceeded by more than was said, late, or unnamed stops"
    )
    cap.add_argument("--only", type=int, metavar="N", help="the fleet of this number")
    commands.add_parser(
        "guide", help="the policy of docs/START.md on the five fakes: minutes until somebody is told, asked, served"
    )
    asked = parser.parse_args(words)
    if asked.command == "caps":
        return play_caps(_say, asked.only)
    if asked.command in {"guide", "outages"}:
        return _tabulate_guide() if asked.command == "guide" else outages(asked.jobs, asked.tick, asked.only, _say)
    if asked.command == "run":
        return max(_run(seed) for seed in asked.seeds)
    if asked.command == "replay":
        return _run(asked.plan, asked.folder)
    if asked.command == "plan":
        return _say(text_of(_plan(asked.plan)).rstrip())
    if asked.command == "crashes":
        return _crashes(asked.plan, asked.every)
    return _campaign(asked)


def _tabulate_guide() -> int:
    with folder() as made:
        for line in list_guide_lines(made):
            _say(line)
    return 0


def _plan(named: str) -> Plan:
    """A file with a plan, or the plan of a seed: 7, or wired:7."""
    kind, _, seed = named.rpartition(":")
    return plan_of(int(seed), kind) if seed.isdecimal() else kept_plan(Path(named))


def _run(named: str, folder: Path | None = None) -> int:
    plan = _plan(named)
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True)
        world_of(plan, folder).play()
    one = played(plan)
    _say(f"{named}: {plan.kind}, {len(plan.boxes)} machines, {one.ticks} ticks, {one.asked} acts, {one.took:.1f} s, {one.hash}")
    for wrong in one.wrong:
        _say(f"  {wrong}")
    if one.wrong:
        _say(f"python -m tests.simulation replay {named}")
    return 1 if one.wrong else 0


def _crashes(named: str, every: int) -> int:
    plan = _plan(named)
    tries, wrong = list(crashing(plan, played(plan).commits))[::every], 0
    for tried in tries:
        for sentence in wrong_with(tried):
            wrong += 1
            _say(f"{next(one.how for one in tried.events if one.what == 'dies')}: {sentence}")
    _say(f"{named}: ended {len(tries)} times, {wrong} wrong")
    return 1 if wrong else 0


def _campaign(asked: argparse.Namespace) -> int:
    found = []
    for line in campaign(asked.worlds, asked.first, asked.jobs, asked.log, chunk=asked.chunk, kind=asked.kind):
        found.append(line)
        rate = line["worlds"] / max(line["cpu_s"], 0.1)
        _say(
            f"{line['first']}+{line['worlds']}: {len(line['violations'])} wrong, {line['ticks']} ticks, {rate:.2f} worlds/CPU-s"
        )
    total = summed(found)
    for name, value in total.items():
        _say(f"{name}: {value}")
    for seed in total["violations"]:
        _say(f"python -m tests.simulation replay {seed}")
    return 1 if total["violations"] or total["rare"] else 0


def _say(line: str) -> int:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
