"""Accuracy against published and measured runs: a page of scores, or one prediction for each row of a file.

    python bench/accuracy.py                                       every table, from ../shared/data/sizing/*_dev.csv
    python bench/accuracy.py --write docs/ACCURACY.md              the same as a page
    python bench/accuracy.py --runs FILE --memory FILE --faketensor FILE --predictions DIR
    python bench/accuracy.py --facts FILE                          facts of public reports: memory, speed and fit

Any subset of the three files. With `--predictions` a file is written for each one given, one line for each of its rows:
what is predicted, in the row's own metric, or the reason why nothing is. Measured columns may be blank or missing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # bench and scripts are folders beside the package, not installed

from bench import card, facts, predictions, scores, speeds  # noqa: E402 - after the path above
from bench.page import PRICES_BEGIN as BEGIN  # noqa: E402
from bench.page import PRICES_END as END  # noqa: E402
from bench.page import Scores, page  # noqa: E402
from bench.peers import PEERS  # noqa: E402
from bench.published import Row, read_rows  # noqa: E402

GIVEN = ROOT.parent / "shared" / "data" / "sizing"
REPORTS = ROOT.parent / "shared" / "data" / "facts3" / "facts.jsonl"
KINDS = ("memory", "runs", "faketensor")


def main(words: list[str] | None = None) -> int:
    """0 when done; 2 where a file cannot be read."""
    asked = arguments(words)
    if asked.facts:
        print("\n\n".join(facts.build_sections(asked.facts)))
        return 0
    paths = {kind: getattr(asked, kind) for kind in KINDS}
    ours = not any(paths.values())
    if ours:
        paths = {
            kind: [path for path in (GIVEN / f"{kind}_dev.csv", GIVEN / f"{kind}2_dev.csv") if path.exists()] for kind in KINDS
        }
    try:
        rows = {kind: [row for path in files for row in read_rows(path)] for kind, files in paths.items() if files}
    except (OSError, UnicodeDecodeError) as error:
        print(f"cannot read the rows: {error}\nGive --memory, --runs or --faketensor a CSV file.", file=sys.stderr)
        return 2
    if asked.predictions:
        predictions.write(asked.predictions, **{kind: rows.get(kind) for kind in KINDS})
        return 0
    told = page(scored(rows), (*facts.build_sections(REPORTS), *card.build_sections()) if ours else ())
    print(told)
    if asked.write:
        prices = keep_part(asked.write)  # written by bench/prices.py
        asked.write.write_text(f"{told.rstrip()}\n\n{prices}\n" if prices else told, encoding="utf-8")
    return 0


def keep_part(page: Path) -> str:
    """The part of the page that another bench writes, between its marks; "" where there is none."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    begin, end = text.find(BEGIN), text.find(END)
    return text[begin : end + len(END)] if 0 <= begin < end else ""


def arguments(words: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=Path, nargs="+", metavar="FILE", help=f"rows in the format of {kind}_dev.csv")
    parser.add_argument("--facts", type=Path, metavar="FILE", help="score facts of public reports (JSON lines), nothing else")
    parser.add_argument("--predictions", type=Path, metavar="DIR", help="write predictions there, print no scores")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write the page there")
    return parser.parse_args(words)


def scored(rows: dict[str, list[Row]]) -> Scores:
    """Every score that these rows allow."""
    memory, faketensor = rows.get("memory", []), rows.get("faketensor", [])
    runs = speeds.measured(rows.get("runs", []))
    speed_fitted, hours_fitted = speeds.by_shipped(runs)
    speed, hours = speeds.by_others(runs)
    said = [predictions.memory_line(row) for row in memory]
    return Scores(
        memory=scores.memory_scored(memory),
        memory_peers={name: scores.memory_scored(memory, peer) for name, peer in PEERS.items()},
        decisions=scores.decisions(memory),
        unanswered={line["id"]: line["reason"] for line in said if line.get("reason")},
        speed_fitted=speed_fitted,
        speed=speed,
        hours_fitted=hours_fitted,
        hours=hours,
        speed_peers=speeds.by_peers(runs),
        faketensor=scores.faketensor_scored(faketensor),
        faketensor_peers={name: scores.faketensor_scored(faketensor, peer) for name, peer in PEERS.items()},
    )


if __name__ == "__main__":
    sys.exit(main())
