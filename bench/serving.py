"""Published servers against `costguard.sizing.speed.serving`: output tokens per second of a saturated copy of a model.

    python -m bench.serving

Rows are in `serving.csv`. Each is a server with more requests than it can answer (or with `sequences` at a time), all of
one length. Left out are rows of ShareGPT, of 1,000 requests at once, because the server drains most of the time, and rows that
say neither whether prompts are counted nor how many sequences ran. NVIDIA's fp8 checkpoints store keys and values in fp8; vLLM
and SGLang store them in 16 bits. GPUStack counts prompts and answers: the file has the answers' share.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from costguard.data import ShippedFacts
from costguard.sizing.job import parse_job
from costguard.sizing.placement import ImpossiblePlacement, Placer
from costguard.sizing.speed.serving import measure_copy

ROWS = Path(__file__).with_name("serving.csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRow:
    """One published measurement.

    - `gpus`: hold one copy. `tokens_per_s`: output tokens of all of them. `sequences`: at a time; None: as many as fit.
    - `how`: further keys of the job: precision, quant, kv_cache.
    """

    publisher: str
    model: str
    gpu: str
    gpus: int
    how: tuple[tuple[str, str], ...]
    prompt_len: int
    output_len: int
    sequences: int | None
    tokens_per_s: float


def read_served_rows(file: Path = ROWS) -> list[ServedRow]:
    """Return the rows of `file`."""
    with file.open(encoding="utf-8", newline="") as lines:
        return [
            ServedRow(
                publisher=row["publisher"],
                model=row["model"],
                gpu=row["gpu"],
                gpus=int(row["gpus"]),
                how=tuple((key, row[key]) for key in ("precision", "quant", "kv_cache") if row[key]),
                prompt_len=int(row["prompt_len"]),
                output_len=int(row["output_len"]),
                sequences=int(row["sequences"]) if row["sequences"] else None,
                tokens_per_s=float(row["tokens_per_s"]),
            )
            for row in csv.DictReader(lines)
        ]


def predict_output_rate(row: ServedRow, facts: ShippedFacts) -> float | None:
    """Return the output tokens per second that the model expects of `row`; None if it says that no request fits."""
    lengths = {"prompt_len": row.prompt_len, "output_len": row.output_len}
    table = {"method": "inference", "requests_per_second": 1, **lengths, "parallel": {"tp": row.gpus}, **dict(row.how)}
    job = parse_job(table, facts.get_architecture(row.model))
    ways = Placer(job=job).list_splits(row.gpus)
    if isinstance(ways, ImpossiblePlacement) or job.serving is None:
        message = f"{row} cannot be placed"
        raise ValueError(message)
    copy = measure_copy(job.architecture, ways[0], facts.get_gpus()[row.gpu], job.serving, facts.get_efficiency())
    if copy is None:
        return None
    sequences = row.sequences or copy.most
    return sequences / copy.step(sequences).seconds


def is_mixture(row: ServedRow, facts: ShippedFacts) -> bool:
    """Return whether a token of the row's model passes only some of its experts."""
    shape = facts.get_architecture(row.model)
    return shape.active_parameters < shape.parameters


def measure_errors(rows: Iterable[ServedRow], facts: ShippedFacts) -> dict[tuple[str, bool], list[float]]:
    """Return |log(predicted / measured)| of the rows by (publisher, whether a mixture); rows that do not fit are left out."""
    errors: dict[tuple[str, bool], list[float]] = {}
    for row in rows:
        expected = predict_output_rate(row, facts)
        if expected is not None:
            errors.setdefault((row.publisher, is_mixture(row, facts)), []).append(abs(math.log(expected / row.tokens_per_s)))
    return errors


def main() -> None:
    """Print each row with its error, and the errors by publisher."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None).parse_args()
    facts, rows = ShippedFacts(), read_served_rows()
    for row in rows:
        expected = predict_output_rate(row, facts)
        named = f"{row.publisher:8} {row.model:15} {row.gpu:13} x{row.gpus} {row.prompt_len:>6}/{row.output_len:<5}"
        told = f"{expected:7.0f} {expected / row.tokens_per_s - 1:+5.0%}" if expected else "no request fits"
        print(f"{named} {row.tokens_per_s:7.0f} {told}")
    for (publisher, mixture), errors in measure_errors(rows, facts).items():
        median, worst = (math.expm1(value) for value in (statistics.median(errors), max(errors)))
        print(f"{publisher}, {'mixtures' if mixture else 'dense'}: {len(errors)} rows, median {median:.0%}, most {worst:.0%}")


if __name__ == "__main__":
    main()
