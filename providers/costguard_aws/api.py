"""Requests to EC2, STS and auto-scaling: single ones, and the pages of lists.

A list is read to its stated end. A page that fails, a token that is returned twice, or too many pages is reported, and never
taken for the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from costguard.errors import InvalidAnswerError, ProviderError, RefusedError
from costguard_aws.ec2_pages import CutShortError, ItemPage, explain_lost_page, read_page
from costguard_aws.ec2_xml import find_rows, parse_tree, read_flag, read_text
from costguard_aws.errors import AWS, DRY_RUN
from costguard_aws.session import AwsSession

PAGE = 1000
"""MaxResults of the lists: EC2's most (aws.md section 1)."""
TYPES_PAGE = 100
"""Of DescribeInstanceTypes: its most."""
MOST_PAGES, MOST_ITEMS, MOST_VOLUMES = 1000, 50_000, 200_000
"""Of one list (RELIABILITY H47). A region with 50,000 machines has several times as many volumes."""
UNKNOWN_PARAMETER = ("UnknownParameter", "InvalidParameter", "InvalidParameterValue", "InvalidParameterCombination")
"""How an EC2 that is older than IncludeManagedResources refuses it."""


class Ec2Api:
    """The requests of one session."""

    def __init__(self, session: AwsSession) -> None:
        self._session = session
        self._unmanaged: set[str] = set()

    def fetch_account_id(self) -> str:
        """Return the twelve digits of the key's account."""
        root = parse_tree(self._session.query("sts", self._session.region, "GetCallerIdentity"), "GetCallerIdentity")
        found = read_text(root, "GetCallerIdentityResult/Account")
        if not found.isdigit():
            raise InvalidAnswerError("GetCallerIdentity names no account", provider=AWS)
        return found

    def list_regions(self) -> list[str]:
        """Return every region that is enabled for the account."""
        root = self._query_one(self._session.region, "DescribeRegions")
        listed = find_rows(root, "regionInfo", "DescribeRegions")
        found = [read_text(item, "regionName") for item in listed if read_text(item, "optInStatus") != "not-opted-in"]
        if not found or not all(found):
            raise InvalidAnswerError("DescribeRegions names no region", provider=AWS)
        return sorted(found)

    def list_instances(self, region: str, size: int = PAGE) -> Iterator[list[Element]]:
        """Yield pages of instances, including those that other AWS services run."""
        return (page.elements for page in self._describe_instances(region, _INSTANCES, {}, size))

    def poll_instances(self, region: str) -> Iterator[ItemPage]:
        """Yield pages of instances like `list_instances`, cut into items."""
        return self._describe_instances(region, _INSTANCES._replace(within="instancesSet"), {}, PAGE)

    def _describe_instances(self, region: str, listed: _ItemList, asked: Mapping[str, str], size: int) -> Iterator[ItemPage]:
        more = {} if region in self._unmanaged else {"IncludeManagedResources": "true"}
        try:
            yield from self._query_pages(region, listed, {**asked, **more}, size=size)
        except RefusedError as refused:
            if refused.code not in UNKNOWN_PARAMETER or not more:
                raise
            self._unmanaged.add(region)
            yield from self._query_pages(region, listed, asked, size=size)

    def poll_volumes(self, region: str) -> Iterator[ItemPage]:
        """Yield pages of EBS volumes, attached or not, cut into items."""
        return self._query_pages(region, _VOLUMES._replace(within="volumeSet"), {}, size=PAGE, most=MOST_VOLUMES)

    def list_addresses(self, region: str) -> list[Element]:
        """Return all Elastic IPs; this list has no pages."""
        root = self._query_one(region, "DescribeAddresses")
        return list(find_rows(root, "addressesSet", "DescribeAddresses"))

    def describe_types(self, region: str, names: Sequence[str]) -> Iterator[Element]:
        """Yield those of `names` that exist in the region."""
        asked = _build_filter("instance-type", names)
        for page in self._query_pages(region, _TYPES, asked, size=TYPES_PAGE):
            yield from page.elements

    def find_instance(self, region: str, id: str) -> Element | None:  # noqa: A002 - EC2's word
        """Return one instance; None if it does not exist.

        It is requested by a filter, because a request by id reports a missing instance as an error like any other.
        """
        return next(iter(self.list_existing(region, [id])), None)

    def list_existing(self, region: str, ids: Sequence[str]) -> list[Element]:
        """Return those of `ids`, at most 200, that are instances."""
        wanted = frozenset(ids)
        pages = self._read_all_pages(self._describe_instances(region, _INSTANCES, _build_filter("instance-id", ids), PAGE))
        return [item for page in pages for item in page if read_text(item, "instanceId") in wanted]

    def find_volume(self, region: str, id: str) -> Element | None:  # noqa: A002 - EC2's word
        """Return one volume; None if it does not exist."""
        asked = _build_filter("volume-id", [id])
        pages = self._read_all_pages(self._query_pages(region, _VOLUMES, asked, size=PAGE))
        return next((item for page in pages for item in page if read_text(item, "volumeId") == id), None)

    def find_address(self, region: str, id: str) -> Element | None:  # noqa: A002 - EC2's word
        """Return one Elastic IP by its allocation id or, for an old one, its address; None if it does not exist."""
        kind = "allocation-id" if id.startswith("eipalloc-") else "public-ip"
        root = self._query_one(region, "DescribeAddresses", _build_filter(kind, [id]))
        found = find_rows(root, "addressesSet", "DescribeAddresses")
        return next((item for item in found if id in (read_text(item, "allocationId"), read_text(item, "publicIp"))), None)

    def list_protections(self, region: str, id: str) -> tuple[str, ...]:  # noqa: A002 - EC2's word
        """Return the acts that EC2 refuses until the protection of this instance is lifted: two requests."""
        if self._read_attribute(region, id, "disableApiStop"):
            return ("stop", "terminate")
        return ("terminate",) if self._read_attribute(region, id, "disableApiTermination") else ()

    def read_spot_request_type(self, region: str, id: str) -> str:  # noqa: A002 - EC2's word
        """Return a spot request's type, "one-time" or "persistent"; "" if EC2 does not state it.

        A cancelled or closed request counts as "one-time".
        """
        asked = _build_filter("spot-instance-request-id", [id])
        root = self._query_one(region, "DescribeSpotInstanceRequests", asked)
        requests = find_rows(root, "spotInstanceRequestSet", "DescribeSpotInstanceRequests")
        found = next((item for item in requests if read_text(item, "spotInstanceRequestId") == id), None)
        return read_text(found, "type") if read_text(found, "state") not in ("cancelled", "closed") else "one-time"

    def stop(self, region: str, id: str) -> tuple[str, str]:  # noqa: A002 - EC2's word
        """Send one request, and return EC2's states before and after."""
        return self._change_state(region, "StopInstances", id)

    def start(self, region: str, id: str) -> tuple[str, str]:  # noqa: A002 - EC2's word
        """Send one request, and return EC2's states before and after."""
        return self._change_state(region, "StartInstances", id)

    def terminate(self, region: str, id: str) -> tuple[str, str]:  # noqa: A002 - EC2's word
        """Send one request, and return EC2's states before and after."""
        return self._change_state(region, "TerminateInstances", id)

    def terminate_member(self, region: str, id: str) -> str:  # noqa: A002 - EC2's word
        """Send the auto-scaling group one request to terminate a member and reduce its desired capacity by one.

        Returns the status of the group's activity.
        """
        action = "TerminateInstanceInAutoScalingGroup"
        asked = {"InstanceId": id, "ShouldDecrementDesiredCapacity": "true"}
        root = parse_tree(self._session.query("autoscaling", region, action, asked), action)
        return read_text(root, f"{action}Result/Activity/StatusCode")

    def check_permission(self, region: str, action: str, more: Mapping[str, str]) -> bool:
        """Return True if a dry run of `action` would have succeeded; raises the ProviderError of its failure otherwise."""
        try:
            self._session.query("ec2", region, action, {"DryRun": "true", **more})
        except ProviderError as said:
            if said.code == DRY_RUN:
                return True
            raise
        return True

    def _read_all_pages(self, pages: Iterator[ItemPage]) -> list[list[Element]]:
        """Return every page: a filter's matches may be on any page, and only the last one shows that there are none."""
        try:
            return [list(page.elements) for page in pages]
        except CutShortError as short:
            raise InvalidAnswerError(str(short), provider=AWS) from None

    def _read_attribute(self, region: str, id: str, name: str) -> bool:  # noqa: A002 - EC2's word
        root = self._query_one(region, "DescribeInstanceAttribute", {"InstanceId": id, "Attribute": name})
        return read_flag(root, f"{name}/value")

    def _change_state(self, region: str, action: str, id: str) -> tuple[str, str]:  # noqa: A002 - EC2's word
        root = parse_tree(self._session.query("ec2", region, action, {"InstanceId.1": id}), action)
        item = next((one for one in find_rows(root, "instancesSet", action) if read_text(one, "instanceId") == id), None)
        if item is None:
            raise InvalidAnswerError(f"{action} does not mention {id}", provider=AWS)
        return read_text(item, "previousState/name"), read_text(item, "currentState/name")

    def _query_one(self, region: str, action: str, params: Mapping[str, str] | None = None) -> Element:
        return parse_tree(self._session.query("ec2", region, action, params), action)

    def _query_pages(
        self, region: str, listed: _ItemList, params: Mapping[str, str], *, size: int, most: int = MOST_ITEMS
    ) -> Iterator[ItemPage]:
        """Yield each page, which is emptied when the next one is requested.

        Raises a ProviderError if the first page fails, CutShortError if a later one does or the list has no end.
        """
        action, token, seen, count = listed.action, "", set[str](), 0
        for number in range(1, MOST_PAGES + 1):
            asked = {**params, "MaxResults": str(size), **({"NextToken": token} if token else {})}
            try:
                body = self._session.query("ec2", region, action, asked)
                root, page = read_page(body, action, listed.name, number, within=listed.within, unpack=listed.unpack)
            except ProviderError as broken:
                if number == 1:
                    raise
                raise explain_lost_page(number, action, broken.what) from None
            token, count = read_text(root, "nextToken"), count + len(page)
            del body, root
            yield page
            page.clear()  # whoever asked still holds it: the text of 1,000 instances is 5 MB, and their tree 25 MB
            if not token:
                return
            if token in seen:
                raise CutShortError(f"{action} gave the same page token twice")
            if count >= most:
                break
            seen.add(token)
        raise CutShortError(f"{action} has more than {most} items or {MOST_PAGES} pages")


class _ItemList(NamedTuple):
    """A list of EC2: `unpack` finds its items in the element `name`. `within`: see `read_page`; "": its pages are not cut."""

    action: str
    name: str
    unpack: Callable[[Element], list[Element]] = list
    within: str = ""


def _unpack_reservations(reservations: Element) -> list[Element]:
    """Return every instance; a reservation without one, which EC2 does not produce, becomes an unreadable item."""
    return [item for reservation in reservations for item in _list_held(reservation)]


def _list_held(reservation: Element) -> Sequence[Element]:
    found = reservation.find("instancesSet")
    return list(found) if found is not None and len(found) else [reservation]


def _build_filter(name: str, values: Sequence[str]) -> dict[str, str]:
    return {"Filter.1.Name": name, **{f"Filter.1.Value.{i}": value for i, value in enumerate(values, 1)}}


_INSTANCES = _ItemList("DescribeInstances", "reservationSet", _unpack_reservations)
_VOLUMES, _TYPES = _ItemList("DescribeVolumes", "volumeSet"), _ItemList("DescribeInstanceTypes", "instanceTypeSet")
