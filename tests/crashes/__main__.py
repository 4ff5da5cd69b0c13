"""Deaths of real processes from the command line.

    python -m tests.crashes --kills 5000 [--story acting|recording|...] [--seed S] [--log FILE] [--jobs N]
    python -m tests.crashes --story acting --seed S --chunk N --tries T --keep FOLDER      one chunk again, and what it left

Prints kills by the window they fell into, what was counted, the controls, and for each zero the 95 % bound (3/n). Exit 1 where
anything was wrong, or a control was not caught. With --log, a line of JSON for each chunk; it goes on where it was cut off.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.crashes import campaign
from tests.crashes.campaign import STORIES
from tests.simulation.campaign import commit_now

SEED = 20261122


def main(words: list[str] | None = None) -> int:
    """0 where all is as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.crashes", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--story", choices=STORIES, action="append", help="all of them, unless named")
    parser.add_argument("--kills", type=int, default=1000, help="of each story")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--chunk", type=int, help="only this one, again")
    parser.add_argument("--tries", type=int, default=campaign.MOST_PER_CHUNK, help="of that chunk")
    parser.add_argument("--keep", type=Path, help="leave there what that chunk wrote")
    parser.add_argument("--no-controls", action="store_true")
    asked = parser.parse_args(words)
    if asked.chunk is not None:
        return _again(asked)
    _say(f"commit {commit_now()}, {campaign.machine()}, seed {asked.seed}")
    right = [_figure(story, asked) for story in asked.story or STORIES]
    return 0 if all(right) else 1


def _again(asked: argparse.Namespace) -> int:
    line = campaign.play(asked.story[0], asked.seed, asked.chunk, asked.tries, keep=asked.keep)
    for name, value in line.items():
        _say(f"{name}: {value}")
    return 1 if line["wrong"] else 0


def _figure(story: str, asked: argparse.Namespace) -> bool:
    """Print what a story comes to; whether all is as it must be."""
    began, found = time.monotonic(), []
    for line in campaign.campaign(story, asked.seed, asked.kills, asked.log, jobs=asked.jobs):
        found.append(line)
        for one in line["wrong"]:
            _say(f"{story} chunk {line['chunk']}: {one}")
    total, took_s = campaign.summed(found), time.monotonic() - began
    kills = total["kills"]
    each_ms = 1000 * total["cpu_s"] / max(kills, 1)
    rate = f"{60 * kills / took_s:,.0f} a minute, {each_ms:.1f} ms of CPU each"
    _say(f"{story} ({STORIES[story].about}): {kills:,} deaths in {took_s:.0f} s, {rate}")
    _say(f"  windows: {', '.join(f'{count:,} {name}' for name, count in total['windows'].most_common())}")
    _say(f"  counted: {', '.join(f'{count:,} {name}' for name, count in total['counts'].items())}")
    bound = "" if total["wrong"] else f"; 0 in {kills:,}: 95 % bound {3 / max(kills, 1):.1e}"
    _say(f"  {len(total['wrong'])} of {len(found)} chunks with anything wrong{bound}")
    for number in total["wrong"]:
        tries = next(line["tries"] for line in found if line["chunk"] == number)
        _say(f"  python -m tests.crashes --story {story} --seed {asked.seed} --chunk {number} --tries {tries} --keep FOLDER")
    controls = {} if asked.no_controls else campaign.caught(story, asked.seed)
    for task, why in controls.items():
        _say(f"  control {task!r}: {f'caught: {why}' if why else 'NOT CAUGHT'}")
    return not total["wrong"] and all(controls.values())


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
