"""A real Prometheus scrapes the real server, with the shipped rules; every query of the rules and of the dashboard answers.

Debian's packages `prometheus` (which has promtool) run on loopback. Where they are missing, the tests skip.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from costguard.reporting.metrics import OTHER
from tests.web.desks import beat
from tests.web.stations import TOKEN, station

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "config/prometheus"
DASHBOARD = json.loads((ROOT / "config/grafana/costguard.json").read_text())
RULES = yaml.safe_load((SHIPPED / "rules.yml").read_text())
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: apt install prometheus)")
LONGEST_S = 300

EMPTY_PANELS = {
    "Oldest waiting message": "no message waits",
    "Acts": "no act has come to an end",
    "Acts planned or under way": "no act is planned",
    "GPU-hours idle this month": "no work was measured",
}
"""Panels without data in a healthy fleet, with the reason; the dashboard says the same in their descriptions."""
VARIABLES = {"$__rate_interval": "1m", "$provider": ".*", "$team": ".*"}
MORE = '[[budget]]\nname = "all"\ncap = "100 USD"\n'


@dataclass(frozen=True)
class Prometheus:
    """A running server. `url`: its address."""

    url: str

    def ask(self, path: str, **stated: str) -> Any:  # noqa: ANN401 - JSON
        """The data of an answer of its API."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(stated)}"
        with urllib.request.urlopen(address, timeout=10) as came:  # noqa: S310 - loopback
            return json.load(came)["data"]

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """The series that an expression has now."""
        return list(self.ask("query", query=expression)["result"])


def serve_shipped_configuration(folder: Path, target: str) -> Iterator[Prometheus]:
    """Prometheus with the shipped example and rules, changed where a test needs it: target, token file, and how often."""
    token = folder / "token"
    token.write_text(TOKEN)
    shutil.copy(SHIPPED / "rules.yml", folder)
    config = yaml.safe_load((SHIPPED / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    job["authorization"]["credentials_file"] = str(token)
    job["static_configs"] = [{"targets": [target]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert PROMETHEUS is not None
    words = [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*words, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        made = Prometheus(f"http://127.0.0.1:{port}")
        wait_for_samples(made, process, folder / "log")
        yield made
    finally:
        process.terminate()
        process.wait(30)


def wait_for_samples(server: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for three scrapes, and for the rules that are made of others."""
    last = time.monotonic() + LONGEST_S
    while time.monotonic() < last:
        assert process.poll() is None, log.read_text()
        with suppress(OSError):
            ready = server.query("costguard:idle_gpu_hours:day") and server.query("count_over_time(up[1m]) >= 3")
            if ready:
                return
        time.sleep(0.2)  # another process is waited for
    problems = [one.get("lastError") for one in server.ask("targets")["activeTargets"]]
    pytest.fail(f"no figures within {LONGEST_S} s: {problems}")


@pytest.fixture(scope="module", params=["story", pytest.param("demo", marks=pytest.mark.proof)])
def prometheus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Of a ledger with two machines, one with an agent; `demo`: of the ledger that `costguard demo` writes, and those two."""
    if PROMETHEUS is None:
        pytest.skip("prometheus is not installed (Debian: apt install prometheus)")
    folder = tmp_path_factory.mktemp("prometheus")
    if request.param == "demo":
        words = [sys.executable, "-m", "costguard", "demo", "--ledger", str(folder / "ledger.db")]
        subprocess.run(words, check=True, capture_output=True, timeout=300)
    with ExitStack() as stack:
        watchdog = stack.enter_context(station(folder, more=MORE))
        watchdog.token()
        watchdog.beat(watchdog.joined(), 1, beat())
        watchdog.room.run_guard()
        yield from serve_shipped_configuration(folder, watchdog.at.shown)


def list_panels() -> list[dict[str, Any]]:
    return [one for one in DASHBOARD["panels"] if one["type"] != "row"]


def fill_variables(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def test_every_panel_of_the_dashboard_has_data_or_is_empty_on_purpose(prometheus: Prometheus) -> None:
    empty = set()
    for panel in list_panels():
        for target in panel["targets"]:
            expression = fill_variables(target["expr"])
            assert "$" not in expression, f"{panel['title']}: a variable that the test does not know"
            if not prometheus.query(expression):
                empty.add(panel["title"])
    assert empty <= set(EMPTY_PANELS)
    for panel in list_panels():
        assert panel["title"] not in EMPTY_PANELS or "Empty" in panel["description"]


def test_the_variables_of_the_dashboard_have_values(prometheus: Prometheus) -> None:
    asked = [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    assert len(asked) == 2
    for query in asked:
        found = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
        assert found is not None
        series = prometheus.query(found[1])
        assert {one["metric"].get(found[2]) for one in series} - {None, OTHER}


def test_every_rule_is_evaluated_without_an_error_and_a_healthy_guard_raises_no_page(prometheus: Prometheus) -> None:
    groups = prometheus.ask("rules")["groups"]
    rules = {one["name"]: one for group in groups for one in group["rules"]}
    assert set(rules) == {one.get("record") or one["alert"] for group in RULES["groups"] for one in group["rules"]}
    assert {name: one["lastError"] for name, one in rules.items() if one["health"] != "ok"} == {}
    assert not prometheus.query('ALERTS{alertstate="firing", severity="page"}')


def test_the_figures_in_prometheus_are_those_of_the_ledger(prometheus: Prometheus) -> None:
    ((_, up),) = [one["value"] for one in prometheus.query('up{job="costguard"}')]
    assert up == "1"
    ((_, runs),) = [one["value"] for one in prometheus.query("costguard_guard_runs_total")]
    assert runs == "1"
    ((_, reporting),) = [one["value"] for one in prometheus.query('costguard_agents{state="reporting"}')]
    assert reporting == "1"


@needs_promtool
@pytest.mark.parametrize("words", [("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml")])
def test_promtool_accepts_the_rules_and_each_alert_fires_where_it_should(words: tuple[str, ...]) -> None:
    assert PROMTOOL is not None
    judged = subprocess.run([PROMTOOL, *words], cwd=SHIPPED, capture_output=True, text=True, check=False, timeout=120)
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_every_alert_is_tested() -> None:
    tested = (SHIPPED / "rules_test.yml").read_text()
    alerts = {one["alert"] for group in RULES["groups"] for one in group["rules"] if "alert" in one}
    assert {name for name in alerts if name not in tested} == set()


def test_panels_have_one_number_each_and_lie_beside_each_other() -> None:
    numbers = [one["id"] for one in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    cells = set[tuple[int, int]]()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        ours = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & ours, panel["title"]
        cells |= ours
