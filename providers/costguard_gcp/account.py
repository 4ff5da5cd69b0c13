"""One Google login and the projects it watches: all provider ports that Compute Engine supports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from costguard.bills.bill_line import BillLines
from costguard.errors import InputError, InvalidAnswerError, ProviderError, RefusedError, UnreachableError
from costguard.metering.inventory import Poll
from costguard.metering.observation import Observation, Price
from costguard.providers.transport import Deadline, ProviderContext
from costguard.quoting.offer import OfferListing
from costguard.values.calendar import Period
from costguard.values.provider import MISSING, ActionResponse, HealthCheck
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import UtilizationSamples
from costguard_gcp import actions
from costguard_gcp.actions import find_resource
from costguard_gcp.api import RESOURCES, ComputeSdk, GoogleApi
from costguard_gcp.credentials import Login, TokenSource
from costguard_gcp.inventory import AbsenceCheck, AggregatedList, ProjectLister, make_storage_pricing
from costguard_gcp.machine_types import ShapeCatalogue
from costguard_gcp.price_list import PriceCatalogue
from costguard_gcp.settings import GcpSettings
from costguard_gcp.translation import observe_instance
from costguard_gcp.wire import ProjectPage, take_last_part

if TYPE_CHECKING:  # the SDK is imported when it is asked
    from google.cloud.compute_v1 import Instance

    from costguard_gcp.monitoring import UtilizationReader

SCOPE = "project"
NO_BILL = "no bill: name an export of BigQuery in [providers.gcp] focus_export"
MOST_PAGES = 50


class GcpAccount:
    """The projects of one login.

    All requests use one transport, with a channel per project.
    """

    key_name: str = ""
    """Projects have names of their own, and Google lists nothing of another one under them."""
    acts_at_once: int = 4
    """An act takes four to six requests of 0.2 to 0.8 s each: four acts use the 5 requests a second of `api.PER_S`."""

    def __init__(self, settings: GcpSettings, login: Login, around: ProviderContext) -> None:
        self.stated, self.around = settings, around
        self.tokens = TokenSource(login, around.transport)
        self.google = GoogleApi(around.transport, settings.bases, self.tokens)
        self.compute = ComputeSdk(self.google)
        self.catalogue = PriceCatalogue(self.google, around.clock, around.cache)
        self.shapes = ShapeCatalogue(self.compute)
        self.lister = ProjectLister(self.compute, self.catalogue, self.shapes, AbsenceCheck(self.google), around)
        self._discovered = frozenset[str]()
        self._monitoring: UtilizationReader | None = None
        self.actor = actions.InstanceActions(self.compute, self.shapes)

    @property
    def providers(self) -> Sequence[str]:
        """Google Cloud alone."""
        return ("gcp",)

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Return the projects of the settings and, with `discover`, every active one that the credentials can see."""
        projects = dict.fromkeys(self.stated.projects)
        if self.stated.discover:
            self._discovered = frozenset(self._discover_projects(Deadline(self.stated.timeout_s)))
            projects |= dict.fromkeys(sorted(self._discovered))
        return [ScopeKey("gcp", project, SCOPE) for project in projects]

    def poll(self, scope: ScopeKey) -> Poll:
        """Poll machines, disks and addresses of one project: three lists, and prices once a day."""
        asked_at = self._now()
        inventory, notes = self.lister.list_project(scope.account, Deadline(self.stated.timeout_s))
        return Poll(scope=scope, asked_at=asked_at, at=self._now(), inventory=inventory, notes=notes)

    def look_up(self, key: ResourceKey) -> Observation | None:
        """Return the machine, disk or address with this number in this location; None if it does not exist."""
        self._check_ours(key)
        deadline = Deadline(actions.LOOK_S)
        instance = actions.find_instance(self.compute, key, deadline) if key.region.count("-") > 1 else None
        try:
            if instance is not None:
                return self._observe(instance, key, deadline)
            prices = self.catalogue.read_current(deadline).prices
            return find_resource(self.compute, key, deadline, make_storage_pricing(prices))
        except InputError as odd:
            raise InvalidAnswerError(str(odd.what), provider="gcp", account=key.account) from None

    def fetch_identity(self) -> str | None:
        """Return the projects of the settings, whose ids are unique at Google; None if all projects are discovered."""
        return ", ".join(sorted(self.stated.projects)) or None

    def fetch_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        """Return samples from Cloud Monitoring, with a few requests a project for any number of machines."""
        return self._open_monitoring().fetch_utilization(observations, period)

    def poll_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        """Return the same, without the requests for metrics that lately had no data."""
        return self._open_monitoring().poll_utilization(observations, period)

    def _open_monitoring(self) -> UtilizationReader:
        from costguard_gcp.monitoring import UtilizationReader

        if self._monitoring is None:
            self._monitoring = UtilizationReader(self.google, self.around.clock, self.stated.timeout_s, self.around.cache)
        return self._monitoring

    def list_live_offers(self, gpus: Collection[str] | None) -> OfferListing:
        """Return every GPU machine type in every region for which the price list has all parts."""
        from costguard_gcp.offers import list_offers

        listed = self.catalogue.read_current(Deadline(self.stated.timeout_s), anew=True)
        if listed.why:
            raise UnreachableError(listed.why, provider="gcp")
        return list_offers(listed, self.around.gpus, gpus)

    def has_bill(self) -> bool:
        """Return whether `focus_export` names an export."""
        return bool(self.stated.focus_export)

    def fetch_bill_lines(self, period: Period) -> BillLines:
        """Return the lines of the FOCUS export that `focus_export` names; without that setting there are none."""
        if not self.has_bill():
            return BillLines(lines=(), why=NO_BILL)
        bills = self.around.bills
        return bills.read_bill("gcp", bills.find_pieces(self.stated.focus_export), period, self._now())

    def examine(self) -> Sequence[HealthCheck]:
        """Check credentials, reachability and rights without acting."""
        from costguard_gcp.examination import examine_account

        return examine_account(self)

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        """Stop the machine; its disks stay.

        It is refused if it would lose anything that is not in `lose`, such as local SSD.
        """
        try:
            self._check_ours(key)
            deadline = Deadline(actions.LOOK_S)
            instance = actions.find_instance(self.compute, key, deadline)
        except ProviderError as broken:
            return actions.interpret_error(broken, looking=True)
        if instance is None:
            return ActionResponse(said=MISSING, why=actions.NOT_THERE)
        self.shapes.learn(key.account, {(key.region, take_last_part(instance.machine_type))}, deadline)
        return self.actor.stop(key, lose, instance)

    def terminate(self, key: ResourceKey) -> ActionResponse:
        """Delete the machine, with the disks that are set to be deleted with it."""
        try:
            self._check_ours(key)
            instance = actions.find_instance(self.compute, key, Deadline(actions.LOOK_S))
        except ProviderError as broken:
            return actions.interpret_error(broken, looking=True)
        return ActionResponse(said=MISSING, why=actions.NOT_THERE) if instance is None else self.actor.terminate(key, instance)

    def start_instance(self, key: ResourceKey) -> ActionResponse:
        """Start the machine, if it is stopped."""
        try:
            self._check_ours(key)
            instance = actions.find_instance(self.compute, key, Deadline(actions.LOOK_S))
        except ProviderError as broken:
            return actions.interpret_error(broken, looking=True)
        return ActionResponse(said=MISSING, why=actions.NOT_THERE) if instance is None else self.actor.start(key, instance)

    def fetch_start_price(self, key: ResourceKey) -> Price:
        """Return the present price of its type and tier in the price list."""
        observation = self.look_up(key)
        return observation.prices[-1] if observation is not None and observation.prices else Price(None)

    def _check_ours(self, key: ResourceKey) -> None:
        """Raise RefusedError for a key of another provider or of a project that this login does not watch.

        It imports the SDK first: 2 s, and more on a busy machine, which are not to be taken from the time of a look.
        """
        if key.provider != "gcp" or (key.account not in self.stated.projects and key.account not in self._discovered):
            raise RefusedError("is not watched by this login", provider="gcp", account=key.account)
        self.compute.import_sdk()

    def _observe(self, instance: Instance, key: ResourceKey, deadline: Deadline) -> Observation:
        alone = AggregatedList(items=[(key.region, instance)])
        reading = self.lister.prepare_context(key.account, alone, deadline, [])
        return observe_instance(instance, key.region, reading)[0]

    def _discover_projects(self, deadline: Deadline) -> list[str]:
        """Return every active project, page by page."""
        projects, token = list[str](), ""
        for _ in range(MOST_PAGES):
            params = {"query": "state:ACTIVE", "pageSize": "500", **({"pageToken": token} if token else {})}
            reply = self.google.read(RESOURCES, "", "/v3/projects:search", params, deadline=deadline)
            page = self.google.decode(RESOURCES, "", reply, ProjectPage, "the list of projects")
            projects += [one.project_id for one in page.projects or () if one.state in (None, "ACTIVE")]
            token = page.next_page_token or ""
            if not token:
                return projects
        raise InvalidAnswerError("the pages of projects do not end", provider="gcp")

    def _now(self) -> datetime:
        return self.around.clock.now()
