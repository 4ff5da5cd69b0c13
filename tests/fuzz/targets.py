"""The six targets: what a stranger writes, the seeds that it is changed from, and the product's own code that reads it."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from costguard_admission import HELD, Answer
from costguard_agent.protocol import BEATS_PATH, encode_base64
from costguard_kubernetes.__main__ import _Reviewer
from costguard_public import akamai, aws_spot, azure, cyclenerd, gpuhunt, oci, runpod, skypilot, vast, verda, vultr
from costguard_slurm import JobRefusedError, JobUnreadError, build_request, parse_job

from costguard.agents.messages import MessageRefusedError
from costguard.bills.bill_files import sum_bill_lines
from costguard.data import ShippedFacts
from costguard.errors import CostguardError, ProviderError
from costguard.providers.ports.price_source import MOST_FEED_BYTES, FetchedFeed, PublicPriceSource
from costguard.quoting.job_change import ChangeLimits, JobChange, JobCost, list_breaches
from costguard.renderers import csv_text, github, markdown, table
from costguard.services.poll.bill_files import list_installed_kinds, open_bill
from costguard.services.quote.quote_commands import answer_quote
from costguard.services.quote.review import quote_job_file
from costguard.services.quote.review.comment import read_reviewed_change
from costguard.services.serving.web_admissions import AdmissionQuoter
from costguard.values.calendar import Period
from costguard.values.gpu import GpuNames
from costguard.views.review import build_review_document
from costguard.web.routes.admissions import _parse_hold_end
from tests.cli.test_job_file import CONFIG, TOML
from tests.cli.test_reconcile_files import CSV, CUR, CUR_2, INVOICES, RUNPOD, VAST, row, text
from tests.formats.published import PUBLISHED
from tests.fuzz.bounds import Reader
from tests.integrations.test_kubernetes import asking, pod
from tests.integrations.test_slurm import JOB, PLAIN, RECORDED
from tests.public_prices.answers import CAPTURES, TODAY
from tests.public_prices.feeds import YESTERDAY, pack
from tests.web.desks import NOON, SECRET, beat, envelope, keys, ledger_at, record, rig

MIB = 2**20
NOW = datetime(2026, 11, 22, tzinfo=UTC)


@dataclass(frozen=True)
class Target:
    """`seeds`: of the inputs. `open_reader`: in a folder. `refusals`: how it refuses inputs. `bytes_max`: more is not read."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    open_reader: Callable[[Path], AbstractContextManager[Reader]]
    refusals: tuple[type[Exception], ...]
    bytes_max: int


def name_input(name: str, content: bytes | str | object) -> bytes:
    """Return an input: its name, and its content; what is neither text nor bytes as JSON."""
    if not isinstance(content, bytes):
        content = (content if isinstance(content, str) else json.dumps(content)).encode()
    return f"{name}\n".encode() + content


def split_input(data: bytes) -> tuple[str, bytes]:
    """Return the name and the content of an input."""
    name, _, content = data.partition(b"\n")
    return name.decode(errors="replace"), content


# --- agents' beats: what an enrolled machine that somebody took over signs, and what anybody posts to join


def list_beats() -> list[bytes]:
    ask = {"id": "a", "what": "busy", "name": "x", "for_s": 60, "why": "y"}
    full = beat(record(NOON, cpu_util=1.0), record(NOON, gpu_util=3.0), troubles=["no GPU"], dropped=0, ask=[ask])
    join = {"code": "Q7KM-2RXD-9VTP-HW4C", "public_key": encode_base64(SECRET), "version": "0.1.0"}
    return [name_input("beat", full), name_input("beat", beat()), name_input("join", join)]


@contextmanager
def open_beats(folder: Path) -> Iterator[Reader]:
    with rig(ledger_at(folder)) as desk:
        agent, number = desk.joined(keys()[0]), 0

        def read(data: bytes) -> None:
            nonlocal number
            name, content = split_input(data)
            number += 1
            if name == "join":
                desk.take_join(content[: 2 * 1024])
            else:
                desk.send(envelope(agent, number, NOON, content, path=BEATS_PATH.format(agent)))

        yield read
        assert desk.commits.broke == ""


# --- model configs: job files, configs and launch files of other tools, and a model's own config.json


def list_configs() -> list[bytes]:
    published = {(one.name, one.text) for one in PUBLISHED}
    return [
        *(name_input(name.rpartition("/")[2], content) for name, content in sorted(published)),
        name_input("job.toml", TOML),
        name_input("job.json", {"model": "gpt2", "method": "lora", "tokens": 5e6, "lora": {"rank": 8}}),
        name_input("config.json", CONFIG),
        name_input("config.json", CONFIG | {"num_local_experts": 8, "rope_scaling": {"type": "yarn"}, "layer_types": ["full"]}),
    ]


@contextmanager
def open_configs(folder: Path) -> Iterator[Reader]:
    def read(data: bytes) -> None:
        name, content = split_input(data)
        path = folder / (re.sub(r"[^A-Za-z0-9._-]", "_", name)[:80] or "x")
        path.write_bytes(content)
        try:
            if name == "config.json":
                answer_quote(flags={"model": str(path), "tokens": 5e6}, every=True)
            else:
                answer_quote(flags={}, job_file=str(path), every=True)
        finally:
            path.unlink()

    yield read


# --- bills: as files of any form


def list_bills() -> list[bytes]:
    cur_2 = text([CUR_2])
    return [
        *(name_input("a.csv", one) for one in (CSV, text([CUR]), cur_2, CSV.replace(",", ";"))),
        *(name_input("a.json", one) for one in (RUNPOD, VAST, INVOICES, [row(), row(1)], {"page": {"rows": [row()]}})),
        name_input("a.jsonl", "".join(json.dumps(row(n)) + "\n" for n in range(3))),
        name_input("a.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        name_input("a.parquet", write_parquet()),
    ]


def write_parquet() -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    held = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([row(n) for n in range(20)]), held, compression="snappy")
    return held.getvalue()


@contextmanager
def open_bills(folder: Path) -> Iterator[Reader]:
    kinds = list_installed_kinds("", "main", lambda _: ())
    period = Period(start=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2027, 1, 1, tzinfo=UTC))

    def read(data: bytes) -> None:
        name, content = split_input(data)
        path = folder / ("a." + (re.sub(r"[^a-z.]", "", name.partition(".")[2]) or "csv"))
        path.write_bytes(content)
        try:
            bill = open_bill(path, kinds, NOW)
            sum_bill_lines(bill.parts, period, sums=bill.sums)
        finally:
            path.unlink()

    yield read


# --- price feeds: what an address answers that has another owner now

SOURCES: dict[str, PublicPriceSource] = {
    one.facts.name: one
    for one in (
        *(akamai.source, aws_spot.source, azure.source, cyclenerd.source, gpuhunt.source, oci.source, runpod.source),
        *(skypilot.source, vast.source, verda.source, vultr.source),
    )
}


def list_feeds() -> list[bytes]:
    single = [path for path in sorted(CAPTURES.iterdir()) if path.is_file()]
    pages = [path for folder in sorted(CAPTURES.iterdir()) if folder.is_dir() for path in sorted(folder.iterdir())]
    return [
        *(name_input(path.parent.name, path.read_bytes()) for path in pages),
        *(name_input(path.name.partition("_")[0], path.read_bytes()) for path in single),
        name_input("gpuhunt", pack("aws.csv", (CAPTURES / "gpuhunt_aws.csv").read_bytes())),
    ]


@dataclass
class OneAnswer:
    """A PriceFetcher that answers `left` times with `content`, beside the version that Gpuhunt states; then with an error."""

    name: str
    content: bytes
    today: date = TODAY
    left: int = 2

    def get(self, path: str, *, most_bytes: int = MOST_FEED_BYTES) -> FetchedFeed:
        body = self.content
        if self.name == "gpuhunt" and path.endswith("/version"):
            return FetchedFeed(body=f"{YESTERDAY:%Y%m%d}-42\n".encode(), as_of=None)
        self.left -= 1
        if self.name == "gpuhunt" and not body.startswith(b"PK"):
            body = pack(f"{path.split('/')[-3]}.csv", body)
        if len(body) > most_bytes or self.left < 0:
            raise ProviderError("is too large, or gone", provider=self.name)
        return FetchedFeed(body=body, as_of=None)

    def post(self, path: str, body: bytes, *, most_bytes: int = MOST_FEED_BYTES) -> FetchedFeed:
        assert body
        return self.get(path, most_bytes=most_bytes)


@contextmanager
def open_feeds(_: Path) -> Iterator[Reader]:
    gpus = GpuNames(ShippedFacts().get_gpus())

    def read(data: bytes) -> None:
        name, content = split_input(data)
        source = SOURCES.get(name, akamai.source)
        source.list_public_offers(OneAnswer(source.facts.name, content), gpus)

    yield read


# --- webhooks: reviews of Kubernetes, requests of launchers, and jobs as scontrol shows them


def list_webhooks() -> list[bytes]:
    end, dry = {"hold": "k8s-1", "started": True}, asking(pod(2), dryRun=True)
    claims = pod() | {"spec": {"resourceClaims": [{}], "initContainers": [{"restartPolicy": "Always"}], "containers": []}}
    admit = {"gpu": "T4", "count": 2, "hours": 3.5, "labels": {"project": "vision"}, "id": "k8s-pod-1", "owner": "ada"}
    job = {"job": {"model": "gpt2", "method": "lora", "tokens": 5e6}, "on": "4xA100", "for_s": 60, "provider": "aws"}
    return [
        *(name_input("kubernetes", one) for one in (asking(pod()), dry, asking(pod(), "DELETE"), asking(claims))),
        *(name_input("admit", one) for one in (admit, job)),
        name_input("end", end),
        name_input("slurm", JOB.format(restarts=0, limit="0-03:00:00").replace("JobId=7", "JobId=1")),
        name_input("slurm", RECORDED.format(**PLAIN)),
    ]


class HoldingClient:
    """Answers as a costguard that holds everything."""

    def admit_rental(self, body: dict[str, Any]) -> Answer:
        json.dumps(body)
        return Answer(outcome=HELD, may_launch=True, says="held", hold="h")

    def end(self, hold: str, *, started: bool) -> None:
        json.dumps([hold, started])


@contextmanager
def open_webhooks(_: Path) -> Iterator[Reader]:
    quoter = AdmissionQuoter(config=None, budgets=tuple)
    environ = {"COSTGUARD_OWNER": "annotation"}

    def read(data: bytes) -> None:
        name, content = split_input(data)
        if name == "admit":
            quoter.price(content[: 64 * 1024], "t", NOW)
        elif name == "end":
            _parse_hold_end(content[: 64 * 1024])
        elif name == "slurm":
            build_request("1", parse_job("1", content.decode(errors="replace")), environ)
        else:
            asked = SimpleNamespace(rfile=io.BytesIO(content), server=SimpleNamespace(client=HoldingClient()))
            asked._discard = lambda _: None
            with suppress(ValueError):  # which do_POST answers with 400
                json.dumps(_Reviewer._review(asked, len(content)))  # type: ignore[arg-type]  # all that it uses of itself

    yield read


# --- reviews: a pull request whose files and names a stranger wrote, and the event that states it


def list_reviews() -> list[bytes]:
    names = ("jobs/a.toml", "jobs/[x](y) @ana #1.toml", "https:__e.example|.yaml", "`a` & <b>.sh", "=cmd();=1.json")
    texts = [one.partition(b"\n")[2] for one in list_configs()[::5]]
    event = {"pull_request": {"number": 7, "base": {"sha": "a" * 40}, "head": {"sha": "b" * 40}}}
    return [name_input("event", event), *(name_input(names[n % len(names)], content) for n, content in enumerate(texts))]


ACTS = re.compile(r"(?<![\w&])[@#!]\w|://|www\.|<[a-zA-Z/!?]")
OUR_TAGS = re.compile(r"</?(?:details|summary)>")


@contextmanager
def open_reviews(folder: Path) -> Iterator[Reader]:
    before, after = folder / "before", folder / "after"
    for side in (before, after):
        side.mkdir()
    (before / "x.toml").write_text(TOML)
    old = quote_job_file(before, "x.toml")

    def read(data: bytes) -> None:
        name, content = split_input(data)
        if name == "event":
            (folder / "event").write_bytes(content)
            read_reviewed_change("github", {"GITHUB_EVENT_PATH": str(folder / "event"), "GITHUB_REPOSITORY": "a/b"})
            return
        path = after / ("x" + (Path(name.replace("\0", "")).suffix[:20] or ".toml"))
        path.write_bytes(content)
        new = quote_job_file(after, path.name)
        path.unlink()
        if new is not None and new.problem.startswith("cannot be read: ") and "Error" in new.problem:
            raise AssertionError(new.problem)
        change = JobChange(file=name or "x", before=old, after=new or JobCost(problem=name))
        limits = ChangeLimits()
        document = build_review_document([change], limits, list_breaches([change], limits))
        comment = github.render(document)
        assert len(comment) < 65_536, "GitHub refuses the comment"
        for shown in (comment, markdown.render(document)):
            drawn = re.sub(r"`[^`]*`", "", re.sub(r"\\[^\n]", "", OUR_TAGS.sub("", shown)))
            assert not ACTS.search(drawn), f"a link, a mention or a tag: {ACTS.findall(drawn)[:3]}"
        csv_text.render(document)
        table.render(document)

    yield read


TARGETS = {
    one.name: one
    for one in (
        Target("beats", list_beats, open_beats, (MessageRefusedError,), 64 * 1024),
        Target("configs", list_configs, open_configs, (CostguardError,), 8 * MIB),
        Target("bills", list_bills, open_bills, (CostguardError,), 4 * MIB),
        Target("feeds", list_feeds, open_feeds, (CostguardError,), MIB),
        Target(
            "webhooks",
            list_webhooks,
            open_webhooks,
            (MessageRefusedError, CostguardError, JobRefusedError, JobUnreadError),
            MIB,
        ),
        Target("reviews", list_reviews, open_reviews, (CostguardError,), 8 * MIB),
    )
}
