"""Plug-ins by entry point: found by name, imported only when asked for, and a broken one says which package to mend."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from costguard.errors import CostguardError, UnknownNameError
from costguard.providers import plugins
from costguard.renderers import focus
from costguard.services.poll.bill_files import list_installed_kinds
from costguard.values.provider import ProviderManifest
from costguard.views.document import Document
from tests.charges import ADA, charges, item


@pytest.mark.parametrize("name", ["table", "json", "csv", "markdown"])
def test_each_shipped_format_is_found_and_renders(name: str) -> None:
    assert plugins.load_renderer(name)(Document(data={"schema": "x/1"}, records=({"a": 1},), lead=("a",))).endswith("\n")


def test_a_format_nobody_installed_offers_the_nearest_and_lists_all() -> None:
    with pytest.raises(UnknownNameError) as refused:
        plugins.load_renderer("jsn")
    assert refused.value.nearest[0] == "json"
    assert "installed: beancount, csv, focus, focus-parquet, github, html, json, markdown, table" in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_format_says_what_it_is_made_of_and_which_flags_it_takes() -> None:
    focus = plugins.load_report_format("focus", file="october.csv")
    assert (focus.name, focus.needs, focus.options) == ("focus", "items", ("focus_version",))
    assert (plugins.load_report_format("json").needs, plugins.load_report_format("json").options) == ("", ())


@pytest.mark.parametrize(("name", "file", "chosen"), [("focus", "a.Parquet", "focus-parquet"), ("json", "a.parquet", "json")])
def test_a_format_has_a_variant_for_the_ending_of_a_file(name: str, file: str, chosen: str) -> None:
    assert plugins.load_report_format(name, file=file).name == chosen


def test_a_plug_in_of_another_package_enters_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "shout = shouting:render", "def render(document):\n    return 'LOUD\\n'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert plugins.load_renderer("shout")(Document(data={})) == "LOUD\n"


@pytest.mark.parametrize("line", ["shout = shouting:nothing", "shout = nowhere:render"])
def test_a_plug_in_that_cannot_be_loaded_names_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    installed(tmp_path, line, "")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CostguardError, match=r"the plug-in 'shout' of costguard\.reports cannot be loaded") as broken:
        plugins.load_renderer("shout")
    assert "reinstall or remove" in str(broken.value)


def test_no_format_is_imported_before_it_is_asked_for() -> None:
    seen = "import sys, costguard.providers.plugins; print([m for m in sys.modules if m.startswith('costguard.reports')])"
    ran = subprocess.run([sys.executable, "-c", seen], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


def test_a_provider_of_another_package_is_found_by_the_name_of_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "anything = shouting:provider", PROVIDER, group="costguard.providers")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = plugins.load_providers()
    assert found.get("acme").manifest.title == "Acme"
    assert {"acme", "sim"} <= set(found.found)


def test_a_provider_of_another_package_says_what_exports_call_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "anything = shouting:provider", SELLER, group="costguard.providers")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert plugins.load_sellers()["acme"].compute == "Acme Pods"
    first, unheard = item(attribution=replace(ADA, provider="acme")), item(attribution=replace(ADA, provider="sim-aws"))
    text = "".join(focus.render(Document(data={}, items=charges([first, unheard]))))
    rows = list(csv.DictReader(text.splitlines()))
    told = [(row["ServiceProviderName"], row["ServiceName"], row["ServiceSubcategory"]) for row in rows]
    assert told == [("Acme GmbH", "Acme Pods", "Containers"), ("sim-aws", "sim-aws Instances", "Virtual Machines")]
    assert "Acme GmbH" in list_installed_kinds("", "", lambda _: ()).known["acme"].called, "what it exports, it reads"


@pytest.mark.parametrize("odd", ['"Acme"', 'Seller(name=" ", account="a", compute="c", storage="s")', "Seller"])
def test_what_a_provider_says_of_itself_as_a_seller_must_be_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: str
) -> None:
    code = PROVIDER.replace("import Manifest", "import Manifest, Seller").replace(
        "abilities={}", f"abilities={{}}, seller={odd}"
    )
    installed(tmp_path, "costguard_acme = shouting:provider", code, group="costguard.providers")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = plugins.load_providers()
    assert ("acme" in found.found, "acme" in found.broken, "aws" in found.found) == (False, True, True)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise RuntimeError('no GPU here')", "RuntimeError: no GPU here"),
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
        ("provider = object()", "it has no manifest"),
    ],
)
def test_a_broken_provider_is_named_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    installed(tmp_path, "costguard_acme = shouting:provider", code, group="costguard.providers")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = plugins.load_providers()
    assert why in found.broken["acme"]
    assert "sim" in found.found
    with pytest.raises(CostguardError, match="the provider 'acme' cannot be used"):
        found.get("acme")


def test_two_providers_of_one_name_are_said_and_ours_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "aaa = shouting:provider", PROVIDER.replace('"acme"', '"sim"'), group="costguard.providers")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = plugins.load_providers()
    assert found.get("sim").manifest.title == "Five simulated clouds"
    assert found.broken["aaa"] == "its name is sim, which another package also has"


def test_a_provider_nobody_installed_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as refused:
        plugins.load_providers().get("smi")
    assert refused.value.nearest[0] == "sim"


def test_no_sdk_and_no_network_is_imported_for_the_manifests() -> None:
    heavy = ("boto3", "botocore", "google.cloud", "google.auth", "httpx2", "msgspec", "stamina", "requests")
    load = "import sys; from costguard.providers.plugins import load_providers; load_providers()"
    seen = f"{load}; print([m for m in {heavy} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", seen], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


def test_what_ends_the_compute_rate_is_an_act_that_the_provider_has() -> None:
    for name, one in plugins.load_providers().found.items():
        acts = {act for act in ("stop", "terminate") if act in one.manifest.abilities}
        saves = one.manifest.saving_act.counts_as
        assert saves == ("stop" if "stop" in acts else "terminate" if acts else ""), name
        assert bool(one.manifest.saving_act.bills_on) == bool(saves), name


def test_an_extra_that_is_not_installed_is_seen_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = ProviderManifest(name="x", title="X", credentials=(), abilities={}, extra="aws")
    assert plugins.find_missing_packages(exact) == ()
    monkeypatch.setattr(plugins, "_is_installed", lambda name: name != "boto3")
    assert plugins.find_missing_packages(exact) == ("boto3",)
    assert plugins.find_missing_packages(ProviderManifest(name="x", title="X", credentials=(), abilities={})) == ()


PROVIDER = """
from costguard.values.provider import ProviderManifest
class Acme:
    manifest = ProviderManifest(name="acme", title="Acme", credentials=(), abilities={})
provider = Acme()
"""
SELLER = PROVIDER.replace("import ProviderManifest", "import CONTAINERS, ProviderManifest, Seller").replace(
    "abilities={}",
    'abilities={}, seller=Seller(name="Acme GmbH", account="Team", compute="Acme Pods", storage="Disks", runs=CONTAINERS)',
)


def installed(folder: Path, line: str, code: str, group: str = "costguard.reports") -> None:
    """A package with one report, as pip would leave it in `folder`."""
    (folder / "shouting.py").write_text(code)
    sys.modules.pop("shouting", None)
    about = folder / "shouting-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{line}\n")
