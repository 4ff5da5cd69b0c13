"""One AWS account: every port that it can keep, over one set of credentials.

The account is what STS says it is, asked once: a key does not change its account, and a name that changed between two polls
would charge everything twice.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from xml.etree.ElementTree import Element

from costguard.bills.bill_line import BillLines
from costguard.errors import CredentialsError, ForbiddenError, InputError, ProviderError, RefusedError, shorten
from costguard.metering.inventory import Failed, Poll
from costguard.metering.observation import Observation
from costguard.providers.transport import Deadline, ProviderContext
from costguard.quoting.offer import OfferListing
from costguard.values.calendar import Period
from costguard.values.provider import REFUSED, ActionResponse, HealthCheck
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import UtilizationSamples
from costguard_aws.actions import InstanceActions
from costguard_aws.api import Ec2Api
from costguard_aws.cloudwatch import DEFAULT_SIGNALS, CloudWatchMetrics
from costguard_aws.cost_explorer import CostExplorer
from costguard_aws.cost_exports import FocusExport
from costguard_aws.credentials import CredentialSource
from costguard_aws.ec2_xml import read_text
from costguard_aws.errors import AWS, format_error
from costguard_aws.examination import AccountExamination
from costguard_aws.instance_types import GpuInstanceType, InstanceTypeCatalogue
from costguard_aws.listing import LONGEST_WHY, RegionListing
from costguard_aws.live_offers import LiveOffers
from costguard_aws.price_list import OnDemandPrices
from costguard_aws.session import AwsSession, limit_requests
from costguard_aws.spot import SpotHistory
from costguard_aws.translation import ListingScope, add_protections, observe_address, observe_volume

REGIONS_HOLD = timedelta(hours=1)
"""How long the list of enabled regions is taken to hold: aws.md section 1."""

TIMEOUT_S = 60

LOOK_S = 8.0
"""How long all that is asked before an act may take: with its own 20 s it is over before an intent expires (30 s)."""


class AwsAccount:
    """What one `Source` can see and do. Nothing is asked before the first question."""

    providers: Sequence[str] = (AWS,)

    def __init__(
        self, source: CredentialSource, table: Mapping[str, Any], around: ProviderContext, *, exports: bool = True
    ) -> None:
        stated: list[str] = table.get("regions", [])
        self._regions_stated, self._expected = tuple(stated), frozenset(table.get("accounts", []))
        self._clock, self._timeout_s = around.clock, table.get("timeout_s", TIMEOUT_S)
        region = table.get("region", stated[0] if stated else "")
        self.session = AwsSession(source, around, endpoint=table.get("endpoint_url", ""), region=region)
        self._ec2 = Ec2Api(self.session)
        self._catalogue = InstanceTypeCatalogue(self._ec2, around.gpus, around.clock)
        prices = OnDemandPrices(self.session, around.cache, around.clock)
        self._listing = RegionListing(self._ec2, self._catalogue, prices, SpotHistory(self.session), around.clock)
        self._offers = LiveOffers(self.session, prices, around.clock)
        signals, namespace = table.get("signals", DEFAULT_SIGNALS), table.get("agent_namespace", "CWAgent")
        self._metrics = CloudWatchMetrics(self.session, around.clock, signals, namespace)
        self._bills = _choose_bill_source(table, self.session, around, exports=exports)
        self._actor = InstanceActions(self._ec2, self._find_type)
        self._lock = threading.Lock()
        self._regions: tuple[str, ...] = ()
        self._regions_at: datetime | None = None

    def list_scopes(self) -> Sequence[ScopeKey]:
        """The account in each of its enabled regions, or of those that the settings name."""
        account = self.session.account or self._find_expected_account() or self.fetch_identity()
        return tuple(ScopeKey(AWS, account, region) for region in self.list_regions())

    def _find_expected_account(self) -> str:
        """The one account that the settings expect: it is its scopes' name whether AWS answers or not, and a poll checks it."""
        return next(iter(self._expected)) if len(self._expected) == 1 else ""

    def poll(self, scope: ScopeKey) -> Poll:
        """One region, read to its end."""
        asked_at, deadline = self._clock.now(), Deadline(self._timeout_s)
        try:
            with limit_requests(deadline):
                self._check_own(scope.account)
        except (ProviderError, InputError) as broken:
            return Poll(scope=scope, at=asked_at, inventory=Failed(shorten(format_error(broken), LONGEST_WHY)))
        return self._listing.poll(scope, deadline.compute_left())

    def look_up(self, key: ResourceKey) -> Observation | None:
        """One instance with its protections, one volume or one address; None: EC2 says that there is none."""
        self._check_own(key.account, key.provider)
        place = ListingScope(key.account, key.region)
        if key.id.startswith("vol-"):
            item = self._ec2.find_volume(key.region, key.id)
            return None if item is None else observe_volume(item, place, _ignore_note)
        if not key.id.startswith("i-"):
            item = self._ec2.find_address(key.region, key.id)
            return None if item is None else observe_address(item, place)
        item = self._ec2.find_instance(key.region, key.id)
        if item is None:
            return None
        seen, _ = self._listing.observe_one(item, place)
        return seen if seen.state == "ended" else add_protections(seen, self._read_protections(key))

    def fetch_identity(self) -> str:
        """The twelve digits of the account. InputError where the settings expect others."""
        with self._lock:
            if not self.session.account:
                self.session.account = self._fetch_identity()
            return self.session.account

    def _fetch_identity(self) -> str:
        found = self._ec2.fetch_account_id()
        if self._expected and found not in self._expected:
            hint = f"accounts = [{', '.join(sorted(self._expected))}] in [providers.aws] does not name it"
            raise CredentialsError(f"{self.session.source.label} belongs to account {found}", provider=AWS, hint=hint)
        return found

    def list_regions(self) -> Sequence[str]:
        """Those that are polled. The last answer holds where a new one cannot be had."""
        if self._regions_stated:
            return self._regions_stated
        with self._lock:
            now = self._clock.now()
            if self._regions_at is None or now - self._regions_at >= REGIONS_HOLD:
                try:
                    self._regions, self._regions_at = tuple(self._ec2.list_regions()), now
                except ProviderError:
                    if not self._regions:
                        raise
            return self._regions

    def fetch_utilization(self, seen: Sequence[Observation], period: Period) -> UtilizationSamples:
        """What CloudWatch says of the running ones: their GPUs where an agent reports them, else their processors."""
        return self._metrics.fetch_utilization([one for one in seen if one.key.account == self.session.account], period)

    def list_live_offers(self, gpus: Collection[str] | None) -> OfferListing:
        """List and spot prices of types with GPUs in the regions that are polled."""
        return self._offers.list_offers(self.list_regions(), gpus)

    def fetch_bill_lines(self, period: Period) -> BillLines:
        """From an export file, or from Cost Explorer; neither is asked unless the settings say so."""
        if self._bills is None:
            return BillLines(lines=(), why="set focus_export, or cost_explorer = true ($0.01 a request), in [providers.aws]")
        self.fetch_identity()
        return self._bills.fetch_bill_lines(period)

    def examine(self) -> Sequence[HealthCheck]:
        """Key, reach, account, rights, clock and measures."""
        return AccountExamination(self.session, self._ec2, self._clock, self._fetch_identity, self.list_regions).run_checks()

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        """Ask EC2 once to stop one instance."""
        with limit_requests(Deadline(LOOK_S)):  # its reads; the act has its own time
            return self._explain_foreign_key(key) or self._actor.stop(key, lose)

    def terminate(self, key: ResourceKey) -> ActionResponse:
        """Ask EC2, or its auto-scaling group, once to end one instance."""
        with limit_requests(Deadline(LOOK_S)):
            return self._explain_foreign_key(key) or self._actor.terminate(key)

    def _check_own(self, account: str, provider: str = AWS) -> None:
        if provider != AWS or self.fetch_identity() != account:
            raise RefusedError(f"{provider} account {account} is not that of {self.session.source.label}", provider=AWS)

    def _explain_foreign_key(self, key: ResourceKey) -> ActionResponse | None:
        """The refusal of what is no instance of this account."""
        if not key.id.startswith("i-"):
            return ActionResponse(said=REFUSED, why="only instances are stopped and ended")
        try:
            self._check_own(key.account, key.provider)
        except (ProviderError, InputError) as broken:
            return ActionResponse(said=REFUSED, why=f"nothing was sent: {broken.what}")
        return None

    def _read_protections(self, key: ResourceKey) -> tuple[str, ...]:
        """None where the key may not ask for them: EC2 honours them whoever asks."""
        try:
            return self._ec2.list_protections(key.region, key.id)
        except ForbiddenError:
            return ()

    def _find_type(self, item: Element, region: str) -> GpuInstanceType | None:
        name = read_text(item, "instanceType")
        self._catalogue.learn([name], region, _ignore_note)
        return self._catalogue.find_type(name)


def _ignore_note(sentence: str) -> None:
    """A single look has nowhere to put notes."""


def _choose_bill_source(
    table: Mapping[str, Any], session: AwsSession, around: ProviderContext, *, exports: bool
) -> FocusExport | CostExplorer | None:
    """Exports hold all accounts, so one account reads them for all."""
    if "focus_export" in table:
        return FocusExport(table["focus_export"], around.bills, around.clock, session) if exports else None
    return CostExplorer(session, around.cache, around.clock) if table.get("cost_explorer") else None
