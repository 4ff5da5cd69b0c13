"""The questions that EC2, STS and auto-scaling are asked, each one request or the pages of one list.

A list is read to its stated end; a page that fails, a token that comes twice, or more pages than anybody has is said, and
never taken for the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from costguard.errors import InvalidAnswerError, ProviderError, RefusedError
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


class CutShortError(Exception):
    """A list ended before its stated end; what was read of it stands. `str()` says why."""


class Ec2Api:
    """What one session may ask."""

    def __init__(self, session: AwsSession) -> None:
        self._session = session
        self._unmanaged: set[str] = set()

    def fetch_account_id(self) -> str:
        """The twelve digits of whoever the key belongs to."""
        root = parse_tree(self._session.query("sts", self._session.region, "GetCallerIdentity"), "GetCallerIdentity")
        found = read_text(root, "GetCallerIdentityResult/Account")
        if not found.isdigit():
            raise InvalidAnswerError("GetCallerIdentity names no account", provider=AWS)
        return found

    def list_regions(self) -> list[str]:
        """Every region that is enabled for the account."""
        root = self._query_one(self._session.region, "DescribeRegions")
        listed = find_rows(root, "regionInfo", "DescribeRegions")
        found = [read_text(item, "regionName") for item in listed if read_text(item, "optInStatus") != "not-opted-in"]
        if not found or not all(found):
            raise InvalidAnswerError("DescribeRegions names no region", provider=AWS)
        return sorted(found)

    def list_instances(self, region: str, size: int = PAGE) -> Iterator[list[Element]]:
        """Pages of instances, those that another AWS service runs among them."""
        return self._describe_instances(region, {}, size)

    def _describe_instances(self, region: str, asked: Mapping[str, str], size: int) -> Iterator[list[Element]]:
        more = {} if region in self._unmanaged else {"IncludeManagedResources": "true"}
        try:
            yield from self._query_pages(
                region, "DescribeInstances", "reservationSet", {**asked, **more}, size=size, read=_unpack_reservations
            )
        except RefusedError as refused:
            if refused.code not in UNKNOWN_PARAMETER or not more:
                raise
            self._unmanaged.add(region)
            yield from self._query_pages(
                region, "DescribeInstances", "reservationSet", asked, size=size, read=_unpack_reservations
            )

    def list_volumes(self, region: str, size: int = PAGE) -> Iterator[list[Element]]:
        """Pages of EBS volumes, attached or not."""
        return self._query_pages(region, "DescribeVolumes", "volumeSet", {}, size=size, read=list, most=MOST_VOLUMES)

    def list_addresses(self, region: str) -> list[Element]:
        """Every Elastic IP: this list has no pages."""
        root = self._query_one(region, "DescribeAddresses")
        return list(find_rows(root, "addressesSet", "DescribeAddresses"))

    def describe_types(self, region: str, names: Sequence[str]) -> Iterator[Element]:
        """Those of `names` that the region knows."""
        asked = _build_filter("instance-type", names)
        for page in self._query_pages(region, "DescribeInstanceTypes", "instanceTypeSet", asked, size=TYPES_PAGE, read=list):
            yield from page

    def find_instance(self, region: str, id: str) -> Element | None:  # noqa: A002 - EC2's word
        """One instance, by a filter: asked by name, one that is gone would be an error like any other. None: there is none."""
        return next(iter(self.list_existing(region, [id])), None)

    def list_existing(self, region: str, ids: Sequence[str]) -> list[Element]:
        """Those of `ids`, at most 200, that are instances."""
        wanted = frozenset(ids)
        pages = self._read_all_pages(self._describe_instances(region, _build_filter("instance-id", ids), PAGE))
        return [item for page in pages for item in page if read_text(item, "instanceId") in wanted]

    def find_volume(self, region: str, id: str) -> Element | None:  # noqa: A002 - EC2's word
        """One volume; None: there is none."""
        asked = _build_filter("volume-id", [id])
        pages = self._read_all_pages(self._query_pages(region, "DescribeVolumes", "volumeSet", asked, size=PAGE, read=list))
        return next((item for page in pages for item in page if read_text(item, "volumeId") == id), None)

    def find_address(self, region: str, id: str) -> Element | None:  # noqa: A002 - EC2's word
        """One Elastic IP, by its allocation or, of an old one, by itself; None: there is none."""
        kind = "allocation-id" if id.startswith("eipalloc-") else "public-ip"
        root = self._query_one(region, "DescribeAddresses", _build_filter(kind, [id]))
        found = find_rows(root, "addressesSet", "DescribeAddresses")
        return next((item for item in found if id in (read_text(item, "allocationId"), read_text(item, "publicIp"))), None)

    def list_protections(self, region: str, id: str) -> tuple[str, ...]:  # noqa: A002 - EC2's word
        """Acts that EC2 refuses until somebody lifts the protection of this instance: two requests."""
        if self._read_attribute(region, id, "disableApiStop"):
            return ("stop", "terminate")
        return ("terminate",) if self._read_attribute(region, id, "disableApiTermination") else ()

    def read_spot_request_type(self, region: str, id: str) -> str:  # noqa: A002 - EC2's word
        """The type of a spot request, "one-time" or "persistent"; "" where EC2 does not say, or it is over."""
        asked = _build_filter("spot-instance-request-id", [id])
        root = self._query_one(region, "DescribeSpotInstanceRequests", asked)
        requests = find_rows(root, "spotInstanceRequestSet", "DescribeSpotInstanceRequests")
        found = next((item for item in requests if read_text(item, "spotInstanceRequestId") == id), None)
        return read_text(found, "type") if read_text(found, "state") not in ("cancelled", "closed") else "one-time"

    def stop(self, region: str, id: str) -> tuple[str, str]:  # noqa: A002 - EC2's word
        """Ask once; the states before and after, as EC2 says."""
        return self._change_state(region, "StopInstances", id)

    def terminate(self, region: str, id: str) -> tuple[str, str]:  # noqa: A002 - EC2's word
        """Ask once; the states before and after, as EC2 says."""
        return self._change_state(region, "TerminateInstances", id)

    def terminate_member(self, region: str, id: str) -> str:  # noqa: A002 - EC2's word
        """Ask its auto-scaling group once to end it and to want one less; the state of what the group then does."""
        action = "TerminateInstanceInAutoScalingGroup"
        asked = {"InstanceId": id, "ShouldDecrementDesiredCapacity": "true"}
        root = parse_tree(self._session.query("autoscaling", region, action, asked), action)
        return read_text(root, f"{action}Result/Activity/StatusCode")

    def check_permission(self, region: str, action: str, more: Mapping[str, str]) -> bool:
        """Whether a dry run of `action` would have worked; the ProviderError that says why not otherwise."""
        try:
            self._session.query("ec2", region, action, {"DryRun": "true", **more})
        except ProviderError as said:
            if said.code == DRY_RUN:
                return True
            raise
        return True

    def _read_all_pages(self, pages: Iterator[list[Element]]) -> list[list[Element]]:
        """Every page: what a filter finds may stand on any, and that it finds nothing is known after the last."""
        try:
            return [list(page) for page in pages]
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
        self,
        region: str,
        action: str,
        name: str,
        params: Mapping[str, str],
        *,
        size: int,
        read: Callable[[Element], list[Element]],
        most: int = MOST_ITEMS,
    ) -> Iterator[list[Element]]:
        """Each page, emptied when the next is asked for.

        A ProviderError where the first fails, CutShortError where a later one does or the list has no end.
        """
        token, seen, count = "", set[str](), 0
        for number in range(1, MOST_PAGES + 1):
            asked = {**params, "MaxResults": str(size), **({"NextToken": token} if token else {})}
            try:
                root = self._query_one(region, action, asked)
                page = read(find_rows(root, name, action))
            except ProviderError as broken:
                if number == 1:
                    raise
                raise CutShortError(f"page {number} of {action} was lost: {broken.what}") from None
            token, count = read_text(root, "nextToken"), count + len(page)
            yield page
            page.clear()  # whoever asked still holds it: a page of 1,000 instances is 25 MB of tree
            del root
            if not token:
                return
            if token in seen:
                raise CutShortError(f"{action} gave the same page token twice")
            if count >= most:
                break
            seen.add(token)
        raise CutShortError(f"{action} has more than {most} items or {MOST_PAGES} pages")


def _unpack_reservations(reservations: Element) -> list[Element]:
    """Every instance; a reservation that shows none, which EC2 does not have, as an item that cannot be read."""
    return [item for reservation in reservations for item in _list_held(reservation)]


def _list_held(reservation: Element) -> Sequence[Element]:
    found = reservation.find("instancesSet")
    return list(found) if found is not None and len(found) else [reservation]


def _build_filter(name: str, values: Sequence[str]) -> dict[str, str]:
    return {"Filter.1.Name": name, **{f"Filter.1.Value.{i}": value for i, value in enumerate(values, 1)}}
