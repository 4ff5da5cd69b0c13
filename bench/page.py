"""`docs/ACCURACY.md` and what `bench/accuracy.py` prints: the same page, from the same scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.scores import FAKE, Decision, Score, Scored, score, worst

SIZING = {
    "S1, S4: 16 B/param": "65 / 107",
    "18 B/param": "78 / 133",
    "accelerate estimate-memory": "22 / 63",
    "LLaMA-Factory table": "72 / 93",
    "EleutherAI cookbook": "40 / 847",
    "Megatron theoretical report": "63 / 862",
    "6ND at 40 % of dense bf16 peak": "33 / 116",
    "llm-analysis at its suggested 0.5": "33 / 88",
    "class-median efficiency, fitted on these rows": "18 / 85",
}
"""Median / p90 in SIZING.md ("Where the existing estimators stand"), which knew more rows than are given here."""


SPEED_GOALS = {"runs_dev.csv": (0.1, 0.4)}
NEW_SPEED = (0.15, 0.45)
"""Median and p90 wanted: of the rows that the model was built with, and of publications that came later."""
SPEED_COVERED, MEMORY_COVERED = (0.76, 0.9), (0.8, 0.92)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Everything the page tells. Empty where no such file was given."""

    memory: list[Scored] = field(default_factory=list)
    memory_peers: Mapping[str, list[Scored]] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    unanswered: Mapping[str, str] = field(default_factory=dict)
    speed_fitted: list[Scored] = field(default_factory=list)
    speed: list[Scored] = field(default_factory=list)
    hours_fitted: list[Scored] = field(default_factory=list)
    hours: list[Scored] = field(default_factory=list)
    speed_peers: Mapping[str, list[Scored]] = field(default_factory=dict)
    faketensor: list[Scored] = field(default_factory=list)
    faketensor_peers: Mapping[str, list[Scored]] = field(default_factory=dict)

    @property
    def memory_enough(self) -> list[Scored]:
        """Memory rows that state all a formula needs."""
        return [s for s in self.memory if s.enough]

    @property
    def out_of_memory(self) -> list[Decision]:
        """Decisions about jobs that ran out of memory."""
        return [d for d in self.decisions if not d.ran]


def page(found: Scores, more: Sequence[str] = ()) -> str:
    """All sections that have rows, and `more` before what falls short."""
    parts = [HEAD, *_targets(found)]
    parts += _memory(found) if found.memory else []
    parts += _speed(found) if found.speed_fitted else []
    parts += _faketensor(found) if found.faketensor else []
    return "\n\n".join([*parts, *more, *_shortfalls(found), READ]) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns stand under each other: readable as text too."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    padded = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines]
    return "\n".join([padded[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *padded[1:]])


def _targets(found: Scores) -> list[str]:
    rows = [[what, target, reached, "yes" if met else "**no**"] for what, target, reached, met in reached_targets(found)]
    return ["## Against the target", table(("what", "target", "reached", "met"), rows)] if rows else []


def reached_targets(found: Scores) -> list[tuple[str, str, str, bool]]:
    """(what, target, reached, met): each source alike, as far as rows were given."""
    rows: list[tuple[str, str, str, bool]] = []
    for name, scored, median, p90 in (
        *((f"memory, {of}", of_file(found.memory, of), 0.06, 0.2) for of in list_files(found.memory)),
        ("fake-tensor cases", found.faketensor, 0.01, 0.005),
        *((f"speed, {of}", of_file(found.speed, of), *SPEED_GOALS.get(of, NEW_SPEED)) for of in list_files(found.speed)),
    ):
        s = score(scored)
        if s is None:
            continue
        rows.append((f"{name}: median", f"<= {median:.1%}", f"{s.median:.1%}", s.median <= median))
        rows.append((f"{name}: p90", f"<= {p90:.1%}", f"{s.p90:.1%}", s.p90 <= p90))
        if name.startswith("memory"):
            rows.append((f"{name}: under by more than 10 %", "<= 5%", f"{s.under:.1%}", s.under <= 0.05))
        if s.covered is not None:
            least, most = MEMORY_COVERED if name.startswith("memory") else SPEED_COVERED
            told = f"{least:.0%}-{most:.0%}"
            rows.append((f"{name}: 80 % interval covers", told, f"{s.covered:.1%}", least <= s.covered <= most))
    if found.out_of_memory:
        right = sum(d.right for d in found.out_of_memory)
        told = f"{right} of {len(found.out_of_memory)}"
        rows.append(("out-of-memory rows decided right", "all", told, right == len(found.out_of_memory)))
    return rows


def list_files(scored: Iterable[Scored]) -> list[str]:
    """The files in which the rows stand, in order."""
    return list(dict.fromkeys(s.rows_of for s in scored))


def of_file(scored: Iterable[Scored], name: str) -> list[Scored]:
    """The rows of one file."""
    return [s for s in scored if s.rows_of == name]


def _memory(found: Scores) -> list[str]:
    partly = [s for s in found.memory if not s.enough]
    sets = {"all rows with a figure": found.memory} | {of: of_file(found.memory, of) for of in list_files(found.memory)}
    sets |= {"that state enough": found.memory_enough, "that state too little": partly}
    corrected = one_factor(found.memory_enough)
    sets["state enough, times one factor fitted to the other sources"] = corrected
    parts = ["## Memory", MEMORY, scores_table(sets), "### By source", scores_table(by_source(found.memory))]
    parts += ["### Fit decisions", _decisions(found.decisions), "### Worst ten rows that state enough"]
    parts += [worst_table(found.memory_enough, "GB"), "### Worst ten of all rows", worst_table(found.memory, "GB")]
    if found.unanswered:
        parts += ["### Not answered", table(("row", "reason"), [[f"`{i}`", why] for i, why in found.unanswered.items()])]
    return [*parts, "### The same rows by others", PEERS, peers_table(found.memory_enough, found.memory_peers)]


def _speed(found: Scores) -> list[str]:
    stated = [s for s in found.speed if s.enough]
    sets = {"shipped constants, fitted to these rows": found.speed_fitted, "leaving one source out": found.speed}
    sets |= {f"of {of}": of_file(found.speed, of) for of in list_files(found.speed)}
    sets |= {"of which tokens/s were stated, not derived": stated}
    sets |= {"GPU hours, shipped constants": found.hours_fitted, "GPU hours, leaving one source out": found.hours}
    parts = [
        "## Speed and hours",
        SPEED,
        scores_table(sets),
        "### By source, each left out",
        scores_table(by_source(found.speed)),
    ]
    parts += [
        "### Worst ten speeds",
        worst_table(found.speed, "tokens/s"),
        "### Worst ten hours",
        worst_table(found.hours, "GPU h"),
    ]
    return [*parts, "### The same rows by others", peers_table(found.speed, found.speed_peers)]


def _faketensor(found: Scores) -> list[str]:
    parts = ["## Fake tensors", FAKETENSOR, scores_table({"peak of a step": found.faketensor})]
    parts += ["### Worst ten", worst_table(found.faketensor, "GB")]
    return [*parts, "### The same cases by others", peers_table(found.faketensor, found.faketensor_peers)]


def scores_table(sets: Mapping[str, Sequence[Scored]]) -> str:
    """One line a set: each source alike, and at the end each row alike."""
    header = ("rows of", "sources", "rows", "median", "p90", "within 25 %", "under by > 10 %", "interval covers", "by row")
    lines = []
    for name, scored in sets.items():
        s, by_row = score(scored), score(scored, by_row=True)
        if s and by_row:
            covered = "" if by_row.covered is None else f" / {by_row.covered:.0%}"
            lines.append([name, str(s.sources), *_figures(s), f"{by_row.median:.1%} / {by_row.p90:.1%}{covered}"])
    return table(header, lines)


def peers_table(ours: Sequence[Scored], peers: Mapping[str, Sequence[Scored]]) -> str:
    """Each peer on the rows it claims, costguard on the same rows, and what SIZING.md says of published rows."""
    header = ("formula", "rows", "median", "p90", "within 25 %", "under by > 10 %", "costguard there", "SIZING.md")
    told = {} if ours and ours[0].source == FAKE else SIZING
    lines = []
    for name, scored in peers.items():
        ids = {s.id for s in ours}
        theirs = [s for s in scored if s.id in ids]
        s, same = score(theirs), score([o for o in ours if o.id in {t.id for t in theirs}])
        if s and same:
            lines.append([name, *_figures(s)[:-1], f"{same.median:.1%} / {same.p90:.1%}", told.get(name, "")])
    return table(header, lines)


def worst_table(scored: Iterable[Scored], unit: str) -> str:
    """The rows furthest off, with what they are mostly made of or what they leave unsaid."""
    lines = [[f"`{s.id}`", f"{s.found:.4g}", f"{s.measured:.4g}", f"{s.error:+.1%}", _short(s.cause)] for s in worst(scored)]
    return table(("row", f"predicted {unit}", "measured", "error", "likely cause"), lines)


def by_source(scored: Iterable[Scored]) -> dict[str, list[Scored]]:
    """Rows by who published them."""
    sources: dict[str, list[Scored]] = {}
    for s in sorted(scored, key=lambda s: s.source):
        sources.setdefault(s.source, []).append(s)
    return sources


def one_factor(scored: Sequence[Scored]) -> list[Scored]:
    """Every source corrected by the median of measured / predicted of the others: what fitting one number would gain."""
    corrected = []
    for source, rows in by_source(scored).items():
        ratios = sorted(s.measured / s.found for s in scored if s.source != source)
        factor = ratios[len(ratios) // 2] if ratios else 1.0
        corrected += [Scored(id=s.id, source=source, found=s.found * factor, measured=s.measured) for s in rows]
    return corrected


def _figures(s: Score) -> list[str]:
    covered = "" if s.covered is None else f"{s.covered:.1%}"
    return [str(s.rows), f"{s.median:.1%}", f"{s.p90:.1%}", f"{s.within:.0%}", f"{s.under:.1%}", covered]


def _decisions(decisions: Sequence[Decision]) -> str:
    counted = [(name, [d for d in decisions if d.ran == ran]) for name, ran in (("ran out of memory", False), ("ran", True))]
    lines = [[name, str(len(asked)), str(sum(d.right for d in asked))] for name, asked in counted]
    wrong = [[f"`{d.id}`", name, f"{d.gb:.1f}", f"{d.card_gb:.1f}"] for name, asked in counted for d in asked if not d.right]
    told = table(("job", "rows", "decided right"), lines)
    return told + "\n\n" + table(("wrong", "job", "needed GB", "card GB"), wrong) if wrong else told


def _shortfalls(found: Scores) -> list[str]:
    if not reached_targets(found):
        return ["No row could be scored: none states what was measured."]
    missed = [row for row in reached_targets(found) if not row[3]]
    if not missed:
        return ["## What falls short", "Nothing: every target above is met on the rows given."]
    lines = [f"- {what}: {reached}, wanted {target}." for what, target, reached, _ in missed]
    for name, scored, limit in (
        ("memory rows that state enough", found.memory_enough, 0.2),
        ("memory rows that state too little", [s for s in found.memory if not s.enough], 0.2),
        ("speeds", found.speed, 0.4),
    ):
        off = Counter(s.source for s in scored if abs(s.error) > limit)
        if off:
            told = ", ".join(f"{source} {count}" for source, count in off.most_common())
            lines.append(f"- Largest errors, {name} more than {limit:.0%} off: {told}.")
    low = Counter(s.source for s in found.memory if s.error < -0.1)
    if low:
        lines.append(
            f"- Memory under by more than 10 %: {', '.join(f'{source} {count}' for source, count in low.most_common())}."
        )
    return ["## What falls short", "\n".join(lines)]


def _short(text: str, most: int = 110) -> str:
    clean = " ".join(text.replace("|", "/").split())
    return clean if len(clean) <= most else clean[: most - 3].rsplit(" ", 1)[0] + " ..."


PRICES_BEGIN, PRICES_END = "<!-- prices: begin -->", "<!-- prices: end -->"
"""Between them stands what `bench/prices.py` writes."""

HEAD = """# Accuracy

Written by `python bench/accuracy.py --write docs/ACCURACY.md`; do not edit. It compares costguard's predictions with
published measurements and with exact fake-tensor runs, and scores other formulas on the same rows."""

MEMORY = """Error = predicted / measured - 1, in the row's own metric. The prediction is our peak for rows of allocated or
active memory, plus the allocator's slack for reserved, plus the CUDA context for nvidia-smi; the size of the weights for a
file size, the size of the cache for a KV-cache row, and the memory of the card for a row that fills a card completely. Rows
marked `n` in `usable_for_formula` are predicted but not scored.

**No program fits a constant of the memory model**, so nothing needs to be fitted again when a source is left out: each term
is counted from the modules' code or taken from fake-tensor runs, and the sources of the few fixed figures (context, slack,
buffers) are in `overheads.py` and `frameworks.py` of `sizing/memory/`. Slack is about the 60th percentile of the published
pairs, because too little memory causes a crash. The people who chose these figures knew the rows, so the scores of the
sources listed here are better than those of new ones. The last line shows the effect of one fitted number: each source is
multiplied by the median of measured / predicted of the others."""

PEERS = """These are rows with sufficient information, and each formula is applied to the rows that its authors intend:
rules of bytes per parameter and Megatron's report if all weights are trained, accelerate on one GPU without adapters,
DeepSpeed's estimator with stage 3. If a source does not state how several GPUs share states, they share them as in the ZeRO
paper; EleutherAI's score term is left out with flash attention. This is the most favourable interpretation. SIZING.md's
figures (median / p90, %) are for more rows, and for a selection of rows that it does not list, so they differ by some
points: bytes per parameter, accelerate and LLaMA-Factory's p90 agree closely; in EleutherAI's and Megatron's formulas a
term grows with the length, so that a few long rows determine the p90."""

SPEED = """Speeds are tokens per second per GPU in steady state; if a source states only TFLOPS, its tokens/s are derived
from the FLOPs that it states. "Leaving one source out" fits everything again without the row's source (weights, evidence,
width of the interval, whole-run overhead) and then runs the shipped code. The people who chose the components of a step,
their priors and the classes of intervals knew all these rows, so no row here is evidence for those choices.

GPU hours are those of whole runs: tokens divided by speed, times the overhead of restarts and evaluation; hours "projected"
from a speed have no overhead. Hours that were published without a token count are not predicted and not scored.

Peers: the class-median line agrees with SIZING.md's, so both interpret the rows in the same way; 6ND and llm-analysis score
better here than there because active parameters are counted for mixtures, llm-analysis is limited to the 16-bit peak, and
rows differ."""

FAKETENSOR = """These are exact allocated bytes of two training steps on fake tensors (`tools/faketensor.py`), one GPU,
Hugging Face modules, without workspaces, context and slack. No constant is fitted here either."""

READ = """## How to read

- **Equal weights per source**: every source has the same weight, independent of its number of rows, because rows of one
  source share a machine, a person and a method of measurement. *by row* gives median / p90 / coverage with equal weights
  per row.
- *median*, *p90* are those of the absolute relative error. *under by > 10 %* means a crash after paid minutes for memory,
  but only an error for speed and hours. *interval covers* is the share of rows inside the 80 % interval, which is fitted
  without the row's source; more than 90 % is too wide.
- *costguard there* is our median / p90 on exactly the rows of the formula.
- Rows come from blogs, READMEs and papers: some state a batch but not the length, a maximum over varying lengths, or GB
  instead of GiB. An error of 5 % in a row may be an error of the row; if all rows of a source have an error in one
  direction, it is ours.
- `python bench/accuracy.py --runs FILE --memory FILE --faketensor FILE --predictions DIR` predicts new rows. Measured
  columns are never used for a prediction: inputs pass an allow-list (`bench/published.py`), and a test blanks them."""
