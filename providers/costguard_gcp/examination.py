"""The checks of `costguard doctor` for Google Cloud: credentials, reachability and rights, without acting."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from costguard.errors import CostguardError, CredentialsError, InputError, ProviderError, to_one_line
from costguard.providers.transport import Deadline
from costguard.values.provider import (
    CHECK_BAD,
    CHECK_GOOD,
    CHECK_SKIPPED,
    CHECK_UNSURE,
    CLOCK_CHECK,
    CREDENTIALS_CHECK,
    IDENTITY_CHECK,
    PERMISSION_CHECK,
    REACHABLE_CHECK,
    UTILIZATION_CHECK,
    HealthCheck,
)
from costguard_gcp.api import COMPUTE, MONITORING, RESOURCES
from costguard_gcp.credentials import FIX
from costguard_gcp.inventory import CLIENTS, check_page, is_no_compute_refusal
from costguard_gcp.wire import Permissions, SeriesPage

if TYPE_CHECKING:
    from costguard_gcp.account import GcpAccount

SKEW = timedelta(seconds=30)
ASKED_S = 20.0
MOST_PROJECTS = 10
"""Projects that are looked at one by one."""

RIGHTS = (
    ("list", ("compute.instances.list",), True),
    ("machine types", ("compute.machineTypes.get",), True),
    ("volumes", ("compute.disks.list", "compute.addresses.list"), True),
    ("utilization", ("monitoring.timeSeries.list",), True),
    ("stop", ("compute.instances.stop",), False),
    ("terminate", ("compute.instances.delete",), False),
    ("start", ("compute.instances.start",), False),
)
"""What for, the permissions, and whether watching needs it. Deleting may need compute.disks.delete too (unverified)."""
READER, ACTOR = "config/iam/gcp-reader.yaml", "config/iam/gcp-actor.yaml"


def examine_account(account: GcpAccount) -> list[HealthCheck]:
    """Run every check in order; checks after a failure are skipped.

    It raises nothing.
    """
    checks = list(_check_credentials(account))
    if checks[-1].outcome == CHECK_BAD:
        return [
            *checks,
            HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_SKIPPED, told="there are no credentials"),
        ]
    try:
        projects = [scope.account for scope in account.list_scopes()]
    except CostguardError as broken:
        return [
            *checks,
            HealthCheck(
                subject=REACHABLE_CHECK, outcome=CHECK_BAD, told=to_one_line(str(broken)), fix=_explain_enable(RESOURCES, "")
            ),
        ]
    if not projects:
        fix = "set projects in [providers.gcp], or grant roles/browser on the projects"
        return [
            *checks,
            HealthCheck(subject=IDENTITY_CHECK, outcome=CHECK_BAD, told="the credentials can see no project", fix=fix),
        ]
    reached = [_check_reach(account, project) for project in projects[:MOST_PROJECTS]]
    checks += reached
    who = account.tokens.who or account.tokens.login.source
    shown = ", ".join(projects[:MOST_PROJECTS]) + (
        f" and {len(projects) - MOST_PROJECTS} more" if len(projects) > MOST_PROJECTS else ""
    )
    checks.append(HealthCheck(subject=IDENTITY_CHECK, outcome=CHECK_GOOD, told=f"{who}, for {shown}"))
    for project, check in zip(projects, reached, strict=False):
        checks += _check_rights(account, project) if check.outcome == CHECK_GOOD else ()
    checks += [
        _check_prices(account),
        _check_bill(account),
        _check_clock(account, projects[0]),
        _check_utilization(account, projects[0]),
    ]
    return checks


def _check_credentials(account: GcpAccount) -> Iterator[HealthCheck]:
    tokens = account.tokens
    try:
        tokens.build_header(Deadline(ASKED_S))
    except ProviderError as broken:
        yield HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_BAD, told=to_one_line(broken.what), fix=broken.hint or FIX)
        return
    hint = f", token {tokens.read_hint()}" if tokens.read_hint() else ""
    yield HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_GOOD, told=f"{tokens.login.source}{hint}")


def _check_reach(account: GcpAccount, project: str) -> HealthCheck:
    subject = f"{REACHABLE_CHECK}: {project}"
    try:
        fields = {"project": project, "max_results": 1}
        client, request, *_ = CLIENTS["instances"]
        check_page(account.compute.ask(client, "aggregated_list", request, fields, deadline=Deadline(ASKED_S)), "instances")
    except CredentialsError as broken:
        return HealthCheck(
            subject=f"{CREDENTIALS_CHECK}: {project}", outcome=CHECK_BAD, told=to_one_line(broken.what), fix=broken.hint or FIX
        )
    except ProviderError as broken:
        if is_no_compute_refusal(broken) and not account.lister.absence.doubt(broken, project, Deadline(ASKED_S)):
            fix = f"gcloud services enable compute.googleapis.com --project {project}, or leave the project out"
            return HealthCheck(subject=subject, outcome=CHECK_UNSURE, told=f"no Compute Engine there ({broken.code})", fix=fix)
        return HealthCheck(
            subject=subject,
            outcome=CHECK_BAD,
            told=to_one_line(broken.what),
            fix=broken.hint or _explain_grant(project, READER),
        )
    return HealthCheck(subject=subject, outcome=CHECK_GOOD, told=f"{account.google.get_base_url(COMPUTE)} answers")


def _check_rights(account: GcpAccount, project: str) -> Iterator[HealthCheck]:
    """Check the caller's permissions with TestIamPermissions, which changes nothing."""
    all_rights = [right for _, rights, _ in RIGHTS for right in rights]
    try:
        path = f"/v3/projects/{project}:testIamPermissions"
        body = {"permissions": all_rights}
        deadline = Deadline(ASKED_S)
        reply = account.google.read(RESOURCES, project, path, method="POST", body=body, deadline=deadline)
        permissions = (
            account.google.decode(RESOURCES, project, reply, Permissions, "the answer about permissions").permissions or []
        )
    except ProviderError as broken:
        yield HealthCheck(
            subject=f"{PERMISSION_CHECK}: {project}",
            outcome=CHECK_UNSURE,
            told=to_one_line(broken.what),
            fix=_explain_enable(RESOURCES, project),
        )
        return
    for name, rights, needed in RIGHTS:
        missing = [right for right in rights if right not in permissions]
        subject = f"{PERMISSION_CHECK}: {name} ({project})"
        if not missing:
            yield HealthCheck(subject=subject, outcome=CHECK_GOOD, told=f"may {', '.join(rights)}")
        else:
            text = f"may not {', '.join(missing)}"
            text = text if needed else f"this key may not {name}: costguard can watch, not act ({text})"
            fix = _explain_grant(project, READER if needed else ACTOR)
            yield HealthCheck(subject=subject, outcome=CHECK_BAD if needed else CHECK_UNSURE, told=text, fix=fix)


def _check_prices(account: GcpAccount) -> HealthCheck:
    listed = account.catalogue.read_current(Deadline(account.stated.timeout_s))
    if listed.why:
        fix = "gcloud services enable cloudbilling.googleapis.com"
        text = f"{listed.why}; machines are priced from last known and public prices, as estimates"
        return HealthCheck(subject=f"{PERMISSION_CHECK}: offers", outcome=CHECK_BAD, told=text, fix=fix)
    return HealthCheck(
        subject=f"{PERMISSION_CHECK}: offers", outcome=CHECK_GOOD, told=f"{len(listed.prices)} prices in the Billing Catalog"
    )


def _check_bill(account: GcpAccount) -> HealthCheck:
    subject = f"{PERMISSION_CHECK}: bill"
    if not account.stated.focus_export:
        fix = 'export the FOCUS table of BigQuery to files and set focus_export = "..." in [providers.gcp]'
        return HealthCheck(
            subject=subject,
            outcome=CHECK_UNSURE,
            told="no FOCUS export is named: charges cannot be compared with the bill",
            fix=fix,
        )
    try:
        pieces = account.around.bills.find_pieces(account.stated.focus_export)
    except InputError as wrong:
        return HealthCheck(subject=subject, outcome=CHECK_BAD, told=f"{wrong.field} {wrong.what}", fix=wrong.hint or "")
    return HealthCheck(subject=subject, outcome=CHECK_GOOD, told=f"{len(pieces)} files at {account.stated.focus_export}")


def _check_clock(account: GcpAccount, project: str) -> HealthCheck:
    google_time = account.google.open_channel(COMPUTE, project).date
    if google_time is None:
        return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_UNSURE, told="Google's response has no time")
    skew = account.around.clock.now() - google_time
    text = f"{abs(skew.total_seconds()):.0f} s {'ahead of' if skew > timedelta(0) else 'behind'} Google's"
    return (
        HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_BAD, told=text, fix="set the clock: timedatectl set-ntp true")
        if abs(skew) > SKEW
        else HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_GOOD, told=text)
    )


def _check_utilization(account: GcpAccount, project: str) -> HealthCheck:
    """Check whether any machine of the project reports its GPUs by the Ops Agent; only series headers are listed."""
    now = account.around.clock.now()
    params = {
        "filter": 'metric.type="agent.googleapis.com/gpu/utilization" AND resource.type="gce_instance"',
        "interval.startTime": (now - timedelta(hours=1)).isoformat().replace("+00:00", "Z"),
        "interval.endTime": now.isoformat().replace("+00:00", "Z"),
        "view": "HEADERS",
        "pageSize": "100",
    }
    try:
        path = f"/v3/projects/{project}/timeSeries"
        reply = account.google.read(MONITORING, project, path, params, deadline=Deadline(ASKED_S))
        series = account.google.decode(MONITORING, project, reply, SeriesPage, "the time series").time_series or []
    except ProviderError as broken:
        return HealthCheck(
            subject=UTILIZATION_CHECK,
            outcome=CHECK_BAD,
            told=to_one_line(broken.what),
            fix=_explain_enable(MONITORING, project),
        )
    machines = {(one.resource.labels or {}).get("instance_id") for one in series if one.resource}
    if machines:
        return HealthCheck(
            subject=UTILIZATION_CHECK, outcome=CHECK_GOOD, told=f"{len(machines)} machines of {project} report their GPUs"
        )
    ops = "https://cloud.google.com/stackdriver/docs/solutions/agents/ops-agent"
    fix = f"costguard agent enrol ID for each machine, or the Ops Agent: {ops}"
    text = (
        f"no machine of {project} reports its GPUs by the Ops Agent; CPU is always there, and GPUs of A3 Mega, A3 Ultra and A4"
    )
    return HealthCheck(subject=UTILIZATION_CHECK, outcome=CHECK_UNSURE, told=text, fix=fix)


def _explain_grant(project: str, file: str) -> str:
    return f"gcloud iam roles create costguard --project {project} --file {file}, and grant it"


def _explain_enable(service: str, project: str) -> str:
    api = {RESOURCES: "cloudresourcemanager", MONITORING: "monitoring"}[service]
    return f"gcloud services enable {api}.googleapis.com{f' --project {project}' if project else ''}"
