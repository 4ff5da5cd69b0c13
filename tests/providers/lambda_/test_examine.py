"""What doctor learns of an account of Lambda."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from costguard.values.health import BAD, GOOD, SKIPPED, UNSURE, Check
from tests.contract.rig import WRONG
from tests.fakes.lambda_ import KEY, OWNER
from tests.providers.lambda_.open_fake import account
from tests.providers.lambda_.rig import LambdaRig


@pytest.fixture
def rig() -> LambdaRig:
    return LambdaRig()


def examined(rig: LambdaRig, tmp_path: Path, **more: Any) -> dict[str, Check]:  # noqa: ANN401
    with account(rig, tmp_path, **more) as source:
        checks = source.examine()
    assert KEY not in repr(checks)
    assert all(check.fix for check in checks if check.outcome == BAD)
    return {check.subject: check for check in checks}


def test_a_healthy_account_is_told_whole_and_nothing_is_acted(rig: LambdaRig, tmp_path: Path) -> None:
    found = examined(rig, tmp_path)
    assert {subject: check.outcome for subject, check in found.items()} == {
        "credentials": GOOD,
        "reachable": GOOD,
        "identity": GOOD,
        "permission: list instances": GOOD,
        "permission: list filesystems": GOOD,
        "permission: offers": GOOD,
        "permission: audit log": GOOD,
        "permission: terminate": UNSURE,
        "clock": GOOD,
        "utilization": UNSURE,
    }
    assert OWNER in found["identity"].told
    assert f"...{KEY[-4:]}" in found["credentials"].told
    assert {one.method for one in rig.fake.asked} == {"GET"}


def test_a_wrong_key_is_bad_with_what_to_do(rig: LambdaRig, tmp_path: Path) -> None:
    found = examined(rig, tmp_path, environ={"LAMBDA_API_KEY": WRONG})
    assert found["credentials"].outcome == BAD
    assert "LAMBDA_API_KEY" in found["credentials"].fix
    assert found["reachable"].outcome == GOOD
    assert found["identity"].outcome == SKIPPED


@pytest.mark.parametrize("kind", ["status", "html", "reset"])
def test_what_cannot_be_reached_is_bad_and_the_key_unsure(rig: LambdaRig, tmp_path: Path, kind: str) -> None:
    rig.fake.fault("GET", kind)
    found = examined(rig, tmp_path)
    assert (found["credentials"].outcome, found["reachable"].outcome) == (UNSURE, BAD)


def test_a_log_that_may_not_be_read_is_a_limit_and_no_fault(rig: LambdaRig, tmp_path: Path) -> None:
    rig.fake.log = False
    found = examined(rig, tmp_path)
    assert (found["identity"].outcome, found["permission: audit log"].outcome) == (UNSURE, UNSURE)
    assert "first seen" in found["permission: audit log"].told


def test_a_right_that_is_missing_is_bad_by_its_name(rig: LambdaRig, tmp_path: Path) -> None:
    rig.fake.fault("/file-systems", "status", status=403, body=b'{"error":{"code":"global/forbidden","message":"x"}}')
    found = examined(rig, tmp_path)
    assert found["permission: list filesystems"].outcome == BAD
    assert found["permission: list instances"].outcome == GOOD


@pytest.mark.parametrize("seconds", [-90, 90])
def test_a_clock_that_is_off_is_bad(rig: LambdaRig, tmp_path: Path, seconds: int) -> None:
    with account(rig, tmp_path) as source:
        rig_clock = rig.clock.at

        class Off:
            def now(self) -> Any:  # noqa: ANN401
                return rig_clock + timedelta(seconds=seconds)

        source._clock = Off()
        found = {check.subject: check for check in source.examine()}
    assert found["clock"].outcome == BAD
    assert "90 s" in found["clock"].told
