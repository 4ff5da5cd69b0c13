"""Google Cloud: Compute Engine's machines, disks and addresses, Cloud Monitoring, the Billing Catalog.

One login covers many projects. No SDK and no network module is imported before the first request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from costguard.values.provider import (
    FLAG_SETTING,
    TEXTS_SETTING,
    WHOLE_SETTING,
    MachineTraits,
    ProviderManifest,
    ProviderSetting,
    SavingAct,
    Seller,
    check_provider_table,
)

if TYPE_CHECKING:
    from costguard.bills.bill_files import BillFiles
    from costguard.providers.ports import InstanceSource
    from costguard.providers.transport import ProviderContext
    from costguard.system.child.spot_notices import MetadataService

MANIFEST = ProviderManifest(
    measures=("cpu", "io"),
    name="gcp",
    title="Google Cloud",
    seller=Seller(name="Google Cloud", account="GCP project", compute="Compute Engine", storage="Persistent Disk"),
    # The notice comes about 30 s ahead of the end (Compute Engine documentation, 2026-11).
    machine=MachineTraits(
        firmware=("Google",),
        metadata_url="http://169.254.169.254",
        metadata_variable="GCE_METADATA_HOST",
        notice_ahead=timedelta(seconds=25),
    ),
    credentials=(
        "credentials_file in [providers.gcp]",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "~/.config/gcloud/application_default_credentials.json",
        "the machine's metadata server",
    ),
    saving_act=SavingAct(
        kind="stop",
        bills_on=("persistent disks and Hyperdisk", "static addresses"),
        loses=("local SSD", "memory", "an ephemeral public address"),
    ),
    abilities={
        "list": "every zone of each project; prices from the Billing Catalog, without discounts",
        "volumes": "persistent disks, Hyperdisk and static addresses",
        "offers": "GPU machine types at list and spot prices, whole GPUs only; without information on capacity",
        "utilization": "Cloud Monitoring: CPU always; GPU with the Ops Agent, without it on A3 Mega, A3 Ultra and A4",
        "bill": "from an export of BigQuery (FOCUS, standard or detailed): focus_export",
        "stop": "local SSD is lost, and only with consent",
        "terminate": "with the disks that are set to go with the machine; never against deletion protection",
        "start": "stopped machines that nothing replaces; the zone may have no capacity",
        "permissions": "testIamPermissions",
    },
    settings=(
        ProviderSetting(name="projects", kind=TEXTS_SETTING, told="ids of the projects to watch", example='["my-project"]'),
        ProviderSetting(
            name="discover", kind=FLAG_SETTING, told="watch every active project that the credentials can see", example="true"
        ),
        ProviderSetting(name="credentials_file", told="a credentials file, in place of Google's own places"),
        ProviderSetting(
            name="impersonate", told="the service account to act as", example='"costguard@my-project.iam.gserviceaccount.com"'
        ),
        ProviderSetting(name="anonymous", kind=FLAG_SETTING, told="send no credentials (tests)"),
        ProviderSetting(name="focus_export", told="files of a billing export: a path, a folder or a pattern"),
        ProviderSetting(name="timeout_s", kind=WHOLE_SETTING, told="seconds for one poll of a project", example="60"),
        ProviderSetting(name="api_endpoint", told="base address of Compute Engine; the other services use it too"),
        ProviderSetting(name="monitoring_endpoint", told="base address of Cloud Monitoring"),
        ProviderSetting(name="billing_endpoint", told="base address of the Billing Catalog"),
        ProviderSetting(name="resource_manager_endpoint", told="base address of the Resource Manager"),
    ),
    extra="gcp",
    key_at="https://cloud.google.com/docs/authentication/provide-credentials-adc",
    # Cloud Monitoring shows a sample after up to 240 s (shared/providers/gcp.md, section 4, 2026-11)
    measures_late=timedelta(minutes=4),
    measures_every=timedelta(minutes=1),
    not_seen=(
        "Vertex AI endpoints, training and pipelines, and Cloud Run GPUs: they run in Google's own projects",
        "TPUs, which have an API of their own",
        "committed-use discounts, credits, operating system and workstation licences",
        "the external address that a machine gets by itself, snapshots, images, network traffic",
        "reservations that no machine uses",
    ),
)


class GcpPlugin:
    """The plug-in named by the entry point."""

    @property
    def manifest(self) -> ProviderManifest:
        """Return the plug-in's manifest."""
        return MANIFEST

    @property
    def bill_files(self) -> BillFiles:
        """Return the format of Google's exports, its names in FOCUS files, and how they name its resources."""
        from costguard.bills.bill_files import BillFiles
        from costguard_gcp.billing_export import EXPORT_FORMAT
        from costguard_gcp.wire import take_last_part

        called = ("GCP", "Google", "Google Cloud Platform", "Google LLC")
        return BillFiles(formats=(EXPORT_FORMAT,), called=called, resource=take_last_part)

    def fetch_spot_notice(self, metadata: MetadataService) -> str | None:
        """Return a notice once the machine is preempted: `GET /computeMetadata/v1/instance/preempted` returns TRUE."""
        status, body = metadata.send("/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
        return "the machine is preempted" if (status, body.strip()) == (200, "TRUE") else None

    def open(self, table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
        """Return one source for the one login, with all its projects."""
        checked = check_provider_table(table, MANIFEST.settings, "providers.gcp")
        from costguard_gcp.account import GcpAccount
        from costguard_gcp.credentials import find_login
        from costguard_gcp.settings import parse_settings

        return [GcpAccount(parse_settings(checked), find_login(checked, around), around)]


provider = GcpPlugin()
