"""The questions that EC2, STS and auto-scaling are asked, each one request or the pages of one list.

A list is read to its stated end; a page that fails, a token that comes twice, or more pages than anybody has is said, and
never taken for the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from costguard.errors import InvalidAnswerError, ProviderError, RefusedError
from costguard_aws.ec2_xml import flag_of, rows, text_of, tree
from costguard_aws.errors import AWS, DRY_RUN
from costguard_aws.session import Session

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


class Ec2:
    """What one session may ask."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._unmanaged: set[str] = set()

    def account(self) -> str:
        """The twelve digits of whoever the key belongs to."""
        root = tree(self._session.query("sts", self._session.region, "GetCallerIdentity"), "GetCallerIdentity")
        found = text_of(root, "GetCallerIdentityResult/Account")
        if not found.isdigit():
            raise InvalidAnswerError("GetCallerIdentity names no account", provider=AWS)
        return found

    def regions(self) -> list[str]:
        """Every region that is enabled for the account."""
        root = self._one(self._session.region, "DescribeRegions")
        listed = rows(root, "regionInfo", "DescribeRegions")
        found = [text_of(item, "regionName") for item in listed if text_of(item, "optInStatus") != "not-opted-in"]
        if not found or not all(found):
            raise InvalidAnswerError("DescribeRegions names no region", provider=AWS)
        return sorted(found)

    def instances(self, region: str, size: int = PAGE) -> Iterator[list[Element]]:
        """Pages of instances, those that another AWS service runs among them."""
        return self._described(region, {}, size)

    def _described(self, region: str, asked: Mapping[str, str], size: int) -> Iterator[list[Element]]:
        more = {} if region in self._unmanaged else {"IncludeManagedResources": "true"}
        try:
            yield from self._pages(region, "DescribeInstances", "reservationSet", {**asked, **more}, size=size, read=_instances)
        except RefusedError as refused:
            if refused.code not in UNKNOWN_PARAMETER or not more:
                raise
            self._unmanaged.add(region)
            yield from self._pages(region, "DescribeInstances", "reservationSet", asked, size=size, read=_instances)

    def volumes(self, region: str, size: int = PAGE) -> Iterator[list[Element]]:
        """Pages of EBS volumes, attached or not."""
        return self._pages(region, "DescribeVolumes", "volumeSet", {}, size=size, read=list, most=MOST_VOLUMES)

    def addresses(self, region: str) -> list[Element]:
        """Every Elastic IP: this list has no pages."""
        root = self._one(region, "DescribeAddresses")
        return list(rows(root, "addressesSet", "DescribeAddresses"))

    def types(self, region: str, names: Sequence[str]) -> Iterator[Element]:
        """Those of `names` that the region knows."""
        asked = _filter("instance-type", names)
        for page in self._pages(region, "DescribeInstanceTypes", "instanceTypeSet", asked, size=TYPES_PAGE, read=list):
            yield from page

    def instance(self, region: str, id: str) -> Element | None:  # noqa: A002 - EC2's word
        """One instance, by a filter: asked by name, one that is gone would be an error like any other. None: there is none."""
        return next(iter(self.there(region, [id])), None)

    def there(self, region: str, ids: Sequence[str]) -> list[Element]:
        """Those of `ids`, at most 200, that are instances."""
        wanted = frozenset(ids)
        pages = self._whole(self._described(region, _filter("instance-id", ids), PAGE))
        return [item for page in pages for item in page if text_of(item, "instanceId") in wanted]

    def volume(self, region: str, id: str) -> Element | None:  # noqa: A002 - EC2's word
        """One volume; None: there is none."""
        asked = _filter("volume-id", [id])
        pages = self._whole(self._pages(region, "DescribeVolumes", "volumeSet", asked, size=PAGE, read=list))
        return next((item for page in pages for item in page if text_of(item, "volumeId") == id), None)

    def address(self, region: str, id: str) -> Element | None:  # noqa: A002 - EC2's word
        """One Elastic IP, by its allocation or, of an old one, by itself; None: there is none."""
        kind = "allocation-id" if id.startswith("eipalloc-") else "public-ip"
        root = self._one(region, "DescribeAddresses", _filter(kind, [id]))
        found = rows(root, "addressesSet", "DescribeAddresses")
        return next((item for item in found if id in (text_of(item, "allocationId"), text_of(item, "publicIp"))), None)

    def protected(self, region: str, id: str) -> tuple[str, ...]:  # noqa: A002 - EC2's word
        """Acts that EC2 refuses until somebody lifts the protection of this instance: two requests."""
        if self._attribute(region, id, "disableApiStop"):
            return ("stop", "terminate")
        return ("terminate",) if self._attribute(region, id, "disableApiTermination") else ()

    def spot_request(self, region: str, id: str) -> str:  # noqa: A002 - EC2's word
        """The type of a spot request, "one-time" or "persistent"; "" where EC2 does not say, or it is over."""
        asked = _filter("spot-instance-request-id", [id])
        root = self._one(region, "DescribeSpotInstanceRequests", asked)
        requests = rows(root, "spotInstanceRequestSet", "DescribeSpotInstanceRequests")
        found = next((item for item in requests if text_of(item, "spotInstanceRequestId") == id), None)
        return text_of(found, "type") if text_of(found, "state") not in ("cancelled", "closed") else "one-time"

    def stop(self, region: str, id: str) -> tuple[str, str]:  # noqa: A002 - EC2's word
        """Ask once; the states before and after, as EC2 says."""
        return self._changed(region, "StopInstances", id)

    def terminate(self, region: str, id: str) -> tuple[str, str]:  # noqa: A002 - EC2's word
        """Ask once; the states before and after, as EC2 says."""
        return self._changed(region, "TerminateInstances", id)

    def terminate_member(self, region: str, id: str) -> str:  # noqa: A002 - EC2's word
        """Ask its auto-scaling group once to end it and to want one less; the state of what the group then does."""
        action = "TerminateInstanceInAutoScalingGroup"
        asked = {"InstanceId": id, "ShouldDecrementDesiredCapacity": "true"}
        root = tree(self._session.query("autoscaling", region, action, asked), action)
        return text_of(root, f"{action}Result/Activity/StatusCode")

    def may(self, region: str, action: str, more: Mapping[str, str]) -> bool:
        """Whether a dry run of `action` would have worked; the ProviderError that says why not otherwise."""
        try:
            self._session.query("ec2", region, action, {"DryRun": "true", **more})
        except ProviderError as said:
            if said.code == DRY_RUN:
                return True
            raise
        return True

    def _whole(self, pages: Iterator[list[Element]]) -> list[list[Element]]:
        """Every page: what a filter finds may stand on any, and that it finds nothing is known after the last."""
        try:
            return [list(page) for page in pages]
        except CutShortError as short:
            raise InvalidAnswerError(str(short), provider=AWS) from None

    def _attribute(self, region: str, id: str, name: str) -> bool:  # noqa: A002 - EC2's word
        root = self._one(region, "DescribeInstanceAttribute", {"InstanceId": id, "Attribute": name})
        return flag_of(root, f"{name}/value")

    def _changed(self, region: str, action: str, id: str) -> tuple[str, str]:  # noqa: A002 - EC2's word
        root = tree(self._session.query("ec2", region, action, {"InstanceId.1": id}), action)
        item = next((one for one in rows(root, "instancesSet", action) if text_of(one, "instanceId") == id), None)
        if item is None:
            raise InvalidAnswerError(f"{action} does not speak of {id}", provider=AWS)
        return text_of(item, "previousState/name"), text_of(item, "currentState/name")

    def _one(self, region: str, action: str, params: Mapping[str, str] | None = None) -> Element:
        return tree(self._session.query("ec2", region, action, params), action)

    def _pages(
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
                root = self._one(region, action, asked)
                page = read(rows(root, name, action))
            except ProviderError as broken:
                if number == 1:
                    raise
                raise CutShortError(f"page {number} of {action} was lost: {broken.what}") from None
            token, count = text_of(root, "nextToken"), count + len(page)
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


def _instances(reservations: Element) -> list[Element]:
    """Every instance; a reservation that shows none, which EC2 does not have, as an item that cannot be read."""
    return [item for reservation in reservations for item in _held(reservation)]


def _held(reservation: Element) -> Sequence[Element]:
    found = reservation.find("instancesSet")
    return list(found) if found is not None and len(found) else [reservation]


def _filter(name: str, values: Sequence[str]) -> dict[str, str]:
    return {"Filter.1.Name": name, **{f"Filter.1.Value.{i}": value for i, value in enumerate(values, 1)}}
