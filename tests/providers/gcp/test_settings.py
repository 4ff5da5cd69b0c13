"""Settings and credentials, before anything is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from costguard_gcp import provider
from costguard_gcp.account import GcpAccount

from costguard.errors import CredentialsError, InputError
from costguard.providers.transport import ProviderContext, Transport
from tests.contract.rig import BILLS, NAMES, NoCache
from tests.fakes.server import Hands
from tests.providers.gcp.rig import GcpRig, resource


def _open(home: Path, table: dict[str, Any], **environ: str) -> GcpAccount:
    transport = Transport()
    around = ProviderContext(
        transport=transport, clock=Hands(), gpus=NAMES, bills=BILLS, cache=NoCache(), environ=environ, home=home
    )
    try:
        (account,) = provider.open(table, around)
    finally:
        transport.close()
    assert isinstance(account, GcpAccount)
    return account


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ({}, "projects"),
        ({"projects": ["a-b", "a-b"]}, "projects"),
        ({"projects": ["123456789012"]}, "projects"),
        ({"projects": ["../x"]}, "projects"),
        ({"projects": ["a-b"], "timeout_s": 0}, "timeout_s"),
        ({"projects": ["a-b"], "api_endpoint": "http://example.com"}, "api_endpoint"),
        ({"projects": ["a-b"], "proyects": ["x"]}, "gcp"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(tmp_path: Path, table: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        _open(tmp_path, {"anonymous": True, **table})
    assert field in (caught.value.field or "")
    assert caught.value.hint


def test_without_credentials_the_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError) as caught:
        _open(tmp_path, {"projects": ["a-b"]}, NO_GCE_CHECK="true")
    assert "GOOGLE_APPLICATION_CREDENTIALS" in str(caught.value)
    assert "application_default_credentials.json" in str(caught.value)


def test_credentials_are_looked_for_in_googles_order(tmp_path: Path) -> None:
    own = tmp_path / ".config/gcloud/application_default_credentials.json"
    own.parent.mkdir(parents=True)
    table: dict[str, Any] = {"projects": ["a-b"]}
    assert "metadata server" in _open(tmp_path, table).tokens.login.source
    own.write_text("{}")
    assert "gcloud's" in _open(tmp_path, table).tokens.login.source
    named = tmp_path / "named.json"
    named.write_text("{}")
    assert (
        "GOOGLE_APPLICATION_CREDENTIALS"
        in _open(tmp_path, table, GOOGLE_APPLICATION_CREDENTIALS=str(named)).tokens.login.source
    )
    stated = {**table, "credentials_file": str(named)}
    assert "credentials_file" in _open(tmp_path, stated).tokens.login.source


def test_opening_imports_no_sdk() -> None:
    code = (
        "import sys; from pathlib import Path; from costguard_gcp import provider\n"
        "assert not {'google', 'requests', 'msgspec', 'httpx2'} & set(sys.modules), 'import'\n"
        "from tests.contract.rig import BILLS, NAMES, NoCache; from tests.fakes.server import Hands\n"
        "from costguard.providers.transport import ProviderContext, Transport\n"
        "around = ProviderContext(transport=Transport(), clock=Hands(), gpus=NAMES, cache=NoCache(), "
        "environ={}, home=Path('/'),\n"
        "    bills=BILLS)\n"
        "provider.open({'projects': ['a-b']}, around)\n"
        "assert not {'google.cloud', 'google.auth', 'requests'} & set(sys.modules), 'open'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_active_project_is_found_page_by_page(rig: GcpRig, tmp_path: Path) -> None:
    rig.fake.resources = [resource(scope, 10**15, scope=scope) for scope in ("lab", "prod", "web")]
    with rig.opened(tmp_path, projects=["acme-lab"], discover=True) as account:
        assert [scope.account for scope in account.list_scopes()] == ["acme-lab", "acme-prod", "acme-web"]
