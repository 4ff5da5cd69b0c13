"""The log: facts as lines, and no secret in any of them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from costguard.system import logs
from costguard.system.secret import Secret


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.getLogger("apscheduler").level
    yield
    root.handlers[:], root.level = before[0], before[1]
    logging.getLogger("apscheduler").setLevel(before[2])
    structlog.reset_defaults()


def written(*, as_json: bool = True, **fields: Any) -> str:  # noqa: ANN401 - any field
    out = io.StringIO()
    logs.configure_logging(as_json=as_json, secrets=(Secret("hunter2hunter2"),), stream=out)
    logs.get_log().error("act_failed", **fields)
    return out.getvalue()


def test_a_fact_is_one_json_object_with_its_fields() -> None:
    fact = json.loads(written(instance_id="i-1", cost=2.5, held=None, names=("a", "b")))
    assert list(fact)[:3] == ["at", "level", "event"]
    assert fact.pop("at").endswith("Z")
    assert fact == {
        "level": "error",
        "event": "act_failed",
        "instance_id": "i-1",
        "cost": 2.5,
        "held": None,
        "names": ["a", "b"],
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"error": "no: hunter2hunter2"},
        {"api_key": "hunter2hunter2"},
        {"password": "short"},
        {"headers": {"Authorization": "Bearer hunter2"}},
        {"error": "Authorization: Bearer abcdefghijklmnop"},
        {"url": "https://ada:hunter2pass@host/x?api_key=abcdef123456"},
        {"error": "AKIAIOSFODNN7EXAMPLE was refused"},
        {"error": ["deep", {"token": "abcdef"}]},
        {"held": Secret("hunter2hunter2")},
    ],
    ids=["known", "named", "password", "header", "bearer", "url", "aws", "deep", "secret"],
)
@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
def test_no_secret_is_written(fields: dict[str, object], as_json: bool) -> None:  # noqa: FBT001 - a parameter of the test
    out = written(as_json=as_json, **fields)
    for word in ("hunter2", "abcdef", "AKIAIOSFODNN7EXAMPLE", "short"):
        assert word not in out


def test_a_name_forges_no_line_and_no_colour() -> None:
    out = written(as_json=False, name="x\n2026 level=info event=all_is_well \x1b[31m\u202e")
    assert len(out.splitlines()) == 1
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_what_libraries_warn_of_is_a_fact_too() -> None:
    out = io.StringIO()
    logs.configure_logging(as_json=True, stream=out)
    logging.getLogger("a_library").warning("odd answer with token=%s", "abcdefgh")
    logging.getLogger("a_library").info("nothing of interest")
    fact = json.loads(out.getvalue())
    assert (fact["event"], fact["name"], fact["message"]) == ("library", "a_library", "odd answer with token=[secret]")


def test_a_log_that_cannot_be_written_stops_nothing() -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    logs.configure_logging(as_json=True, stream=Full())
    logs.get_log().info("still here")
