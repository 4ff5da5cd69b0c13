"""What doctor learns of an account of Lambda."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from costguard.values.provider import CHECK_BAD, CHECK_GOOD, CHECK_UNSURE, HealthCheck
from tests.fakes.lambda_ import KEY, OWNER
from tests.providers.lambda_.open_fake import account
from tests.providers.lambda_.rig import LambdaRig


def examined(rig: LambdaRig, tmp_path: Path, **more: Any) -> dict[str, HealthCheck]:  # noqa: ANN401
    with account(rig, tmp_path, **more) as source:
        checks = source.examine()
    assert KEY not in repr(checks)
    assert all(check.fix for check in checks if check.outcome == CHECK_BAD)
    return {check.subject: check for check in checks}


def test_a_healthy_account_is_told_whole_and_nothing_is_acted(rig: LambdaRig, tmp_path: Path) -> None:
    found = examined(rig, tmp_path)
    assert {subject: check.outcome for subject, check in found.items()} == {
        "credentials": CHECK_GOOD,
        "reachable": CHECK_GOOD,
        "identity": CHECK_GOOD,
        "permission: list instances": CHECK_GOOD,
        "permission: list filesystems": CHECK_GOOD,
        "permission: offers": CHECK_GOOD,
        "permission: audit log": CHECK_GOOD,
        "permission: terminate": CHECK_UNSURE,
        "clock": CHECK_GOOD,
        "utilization": CHECK_UNSURE,
    }
    assert OWNER in found["identity"].told
    assert f"...{KEY[-4:]}" in found["credentials"].told
    assert {one.method for one in rig.fake.asked} == {"GET"}


def test_a_log_that_may_not_be_read_is_a_limit_and_no_fault(rig: LambdaRig, tmp_path: Path) -> None:
    rig.fake.log = False
    found = examined(rig, tmp_path)
    assert (found["identity"].outcome, found["permission: audit log"].outcome) == (CHECK_UNSURE, CHECK_UNSURE)
    assert "first seen" in found["permission: audit log"].told


def test_a_right_that_is_missing_is_bad_by_its_name(rig: LambdaRig, tmp_path: Path) -> None:
    rig.fake.fault("/file-systems", "status", status=403, body=b'{"error":{"code":"global/forbidden","message":"x"}}')
    found = examined(rig, tmp_path)
    assert found["permission: list filesystems"].outcome == CHECK_BAD
    assert found["permission: list instances"].outcome == CHECK_GOOD
