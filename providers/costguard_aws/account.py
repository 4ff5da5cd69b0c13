"""One AWS account: all provider ports that it supports, over one set of credentials.

The account id is STS's answer, requested once: a key never changes its account, and an id that changed between two polls would
charge everything twice.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from costguard.bills.bill_line import BillLines
from costguard.errors import CredentialsError, ForbiddenError, InputError, ProviderError, RefusedError, shorten
from costguard.metering.inventory import Failed, Poll
from costguard.metering.observation import Observation, Price
from costguard.providers.transport import Deadline, ProviderContext
from costguard.quoting.offer import OfferListing
from costguard.values.calendar import Period
from costguard.values.provider import REFUSED, ActionResponse, HealthCheck
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import UtilizationSamples
from costguard_aws.actions import InstanceActions
from costguard_aws.api import Ec2Api, Ec2Item
from costguard_aws.cloudwatch import DEFAULT_SIGNALS, CloudWatchMetrics
from costguard_aws.cost_explorer import CostExplorer
from costguard_aws.cost_exports import FocusExport
from costguard_aws.credentials import CredentialSource
from costguard_aws.errors import AWS, format_error
from costguard_aws.examination import AccountExamination
from costguard_aws.instance_types import GpuInstanceType, InstanceTypeCatalogue
from costguard_aws.listing import LONGEST_WHY, RegionListing
from costguard_aws.live_offers import LiveOffers
from costguard_aws.price_list import OnDemandPrices
from costguard_aws.session import AwsSession, limit_requests
from costguard_aws.spot import SpotHistory
from costguard_aws.storage_prices import StoragePrices
from costguard_aws.translation import ListingScope, add_protections

REGIONS_HOLD = timedelta(hours=1)
"""How long the list of enabled regions is taken to hold: aws.md section 1."""

TIMEOUT_S = 60

LOOK_S = 8.0
"""How long all that is asked before an act may take: with its own 20 s it is over before an intent expires (30 s)."""


class AwsAccount:
    """An account accessed with one `CredentialSource`.

    Nothing is requested before the first call.
    """

    providers: Sequence[str] = (AWS,)
    acts_at_once: int = 4
    """An act takes five to seven requests of 0.1 to 0.3 s each: four acts use the 10 requests a second of `session.LIMITS`."""

    def __init__(
        self, source: CredentialSource, table: Mapping[str, Any], around: ProviderContext, *, exports: bool = True
    ) -> None:
        regions: list[str] = table.get("regions", [])
        self._regions_stated, self._expected = tuple(regions), frozenset(table.get("accounts", []))
        self._clock, self._timeout_s = around.clock, table.get("timeout_s", TIMEOUT_S)
        region = table.get("region", regions[0] if regions else "")
        self.session = AwsSession(source, around, endpoint=table.get("endpoint_url", ""), region=region)
        self._ec2 = Ec2Api(self.session)
        self._catalogue = InstanceTypeCatalogue(self._ec2, around.gpus, around.clock)
        prices = OnDemandPrices(self.session, around.cache, around.clock)
        storage = StoragePrices(self.session, around.cache, around.clock)
        self._listing = RegionListing(
            self._ec2, self._catalogue, prices, storage, SpotHistory(self.session), clock=around.clock
        )
        self._offers = LiveOffers(self.session, prices, around.clock)
        signals, namespace = table.get("signals", DEFAULT_SIGNALS), table.get("agent_namespace", "CWAgent")
        self._metrics = CloudWatchMetrics(self.session, around.clock, signals, namespace, around.cache)
        self._bills = _choose_bill_source(table, self.session, around, exports=exports)
        self._actor = InstanceActions(self._ec2, self._find_type)
        self._lock = threading.Lock()
        self._regions: tuple[str, ...] = ()
        self._regions_at: datetime | None = None

    @property
    def key_name(self) -> str:
        """Return the profile or role, by which the settings name the account."""
        return self.session.source.label

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Return the account's scope in each enabled region, or in the regions of the settings."""
        account = self.session.account or self._find_expected_account() or self.fetch_identity()
        return tuple(ScopeKey(AWS, account, region) for region in self.list_regions())

    def _find_expected_account(self) -> str:
        """Return the account id if the settings expect exactly one, else "".

        It names the scopes even if AWS does not answer; each poll checks it.
        """
        return next(iter(self._expected)) if len(self._expected) == 1 else ""

    def poll(self, scope: ScopeKey) -> Poll:
        """Poll one region completely."""
        asked_at, deadline = self._clock.now(), Deadline(self._timeout_s)
        try:
            with limit_requests(deadline):
                self._check_own(scope.account)
        except (ProviderError, InputError) as broken:
            return Poll(scope=scope, at=asked_at, inventory=Failed(shorten(format_error(broken), LONGEST_WHY)))
        return self._listing.poll(scope, deadline.compute_left())

    def look_up(self, key: ResourceKey) -> Observation | None:
        """Return one instance with its protections, one volume or one address; None if it does not exist in EC2."""
        self._check_own(key.account, key.provider)
        place = ListingScope(key.account, key.region)
        if key.id.startswith("vol-"):
            item = self._ec2.find_volume(key.region, key.id)
            return None if item is None else self._listing.observe_disk(item, place, _ignore_note)
        if not key.id.startswith("i-"):
            item = self._ec2.find_address(key.region, key.id)
            return None if item is None else self._listing.observe_ip(item, place)
        item = self._ec2.find_instance(key.region, key.id)
        if item is None:
            return None
        observation, _ = self._listing.observe_one(item, place)
        return observation if observation.state == "ended" else add_protections(observation, self._read_protections(key))

    def fetch_identity(self) -> str:
        """Return the account's twelve digits; raises InputError if the settings expect another account."""
        with self._lock:
            if not self.session.account:
                self.session.account = self._fetch_identity()
            return self.session.account

    def _fetch_identity(self) -> str:
        account_id = self._ec2.fetch_account_id()
        if self._expected and account_id not in self._expected:
            hint = f"accounts = [{', '.join(sorted(self._expected))}] in [providers.aws] does not name it"
            raise CredentialsError(f"{self.session.source.label} belongs to account {account_id}", provider=AWS, hint=hint)
        return account_id

    def list_regions(self) -> Sequence[str]:
        """Return the regions to poll.

        If they cannot be fetched, the last answer is used.
        """
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

    def fetch_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        """Return CloudWatch's metrics of the running machines: GPU if an agent reports it, else CPU."""
        return self._metrics.fetch_utilization(self._list_own(observations), period)

    def poll_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        """Return the same, asking only for what an earlier poll did not get."""
        return self._metrics.poll_utilization(self._list_own(observations), period)

    def _list_own(self, observations: Sequence[Observation]) -> list[Observation]:
        return [one for one in observations if one.key.account == self.session.account]

    def list_live_offers(self, gpus: Collection[str] | None) -> OfferListing:
        """Return list and spot prices of GPU types in the polled regions."""
        return self._offers.list_offers(self.list_regions(), gpus)

    def has_bill(self) -> bool:
        """Return whether the settings enable an export or Cost Explorer, for this account."""
        return self._bills is not None

    def fetch_bill_lines(self, period: Period) -> BillLines:
        """Return bill lines from an export file or Cost Explorer; neither is read unless the settings enable it."""
        if self._bills is None:
            return BillLines(lines=(), why="set focus_export, or cost_explorer = true ($0.01 a request), in [providers.aws]")
        self.fetch_identity()
        return self._bills.fetch_bill_lines(period)

    def examine(self) -> Sequence[HealthCheck]:
        """Check key, reachability, account, rights, clock and metrics."""
        return AccountExamination(self.session, self._ec2, self._clock, self._fetch_identity, self.list_regions).run_checks()

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        """Send EC2 one request to stop one instance."""
        with limit_requests(Deadline(LOOK_S)):  # its reads; the act has its own time
            return self._explain_foreign_key(key) or self._actor.stop(key, lose)

    def terminate(self, key: ResourceKey) -> ActionResponse:
        """Send EC2, or the instance's auto-scaling group, one request to terminate one instance."""
        with limit_requests(Deadline(LOOK_S)):
            return self._explain_foreign_key(key) or self._actor.terminate(key)

    def start_instance(self, key: ResourceKey) -> ActionResponse:
        """Send EC2 one request to start one stopped instance."""
        with limit_requests(Deadline(LOOK_S)):
            return self._explain_foreign_key(key) or self._actor.start(key)

    def fetch_start_price(self, key: ResourceKey) -> Price:
        """Return the present price of its type, or of its spot pool: EC2 charges a start at today's."""
        with limit_requests(Deadline(LOOK_S)):
            observation = self.look_up(key)
        return observation.prices[-1] if observation is not None and observation.prices else Price(None)

    def _check_own(self, account: str, provider: str = AWS) -> None:
        if provider != AWS or self.fetch_identity() != account:
            raise RefusedError(f"{provider} account {account} is not that of {self.session.source.label}", provider=AWS)

    def _explain_foreign_key(self, key: ResourceKey) -> ActionResponse | None:
        """Return the refusal for a key that is no instance of this account; None if it is one."""
        if not key.id.startswith("i-"):
            return ActionResponse(said=REFUSED, why="only instances can be stopped and terminated")
        try:
            self._check_own(key.account, key.provider)
        except (ProviderError, InputError) as broken:
            return ActionResponse(said=REFUSED, why=f"nothing was sent: {broken.what}")
        return None

    def _read_protections(self, key: ResourceKey) -> tuple[str, ...]:
        """Return the protections; none if the key may not read them: EC2 enforces them in any case."""
        try:
            return self._ec2.list_protections(key.region, key.id)
        except ForbiddenError:
            return ()

    def _find_type(self, item: Ec2Item, region: str) -> GpuInstanceType | None:
        name = item.get("InstanceType", "")
        self._catalogue.learn([name], region, _ignore_note)
        return self._catalogue.find_type(name)


def _ignore_note(sentence: str) -> None:
    """Drop a note: a single look-up has no place for notes."""


def _choose_bill_source(
    table: Mapping[str, Any], session: AwsSession, around: ProviderContext, *, exports: bool
) -> FocusExport | CostExplorer | None:
    """Return the configured bill source, None if there is none.

    An export covers all accounts, so one account reads it for all.
    """
    if "focus_export" in table:
        return FocusExport(table["focus_export"], around.bills, around.clock, session) if exports else None
    return CostExplorer(session, around.cache, around.clock) if table.get("cost_explorer") else None
