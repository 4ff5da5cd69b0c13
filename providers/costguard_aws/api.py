"""Requests to EC2, STS and auto-scaling by boto3's clients and paginators: single ones, and the pages of lists.

A list is read to its stated end. A page that fails, a token that is returned twice, or too many pages is reported, and never
taken for the end; an answer without its list is no empty list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from costguard.errors import InvalidAnswerError, ProviderError, RefusedError
from costguard_aws.errors import AWS, DRY_RUN, call_operation, read_pages
from costguard_aws.session import AwsSession

Ec2Item = Mapping[str, Any]
"""One item of a list as boto3 gives it: a field that EC2 left out is missing; a time that cannot be read is a text."""

PAGE = 1000
"""MaxResults of the lists: EC2's most (aws.md section 1)."""
TYPES_PAGE = 100
"""Of DescribeInstanceTypes: its most."""
MOST_PAGES, MOST_ITEMS, MOST_VOLUMES = 1000, 50_000, 200_000
"""Of one list (RELIABILITY H47). A region with 50,000 machines has several times as many volumes."""
UNKNOWN_PARAMETER = ("UnknownParameter", "InvalidParameter", "InvalidParameterValue", "InvalidParameterCombination")
"""How an EC2 that is older than IncludeManagedResources refuses it."""


class CutShortError(Exception):
    """A list ended before its stated end; the part that was read is valid.

    `str()` gives the reason.
    """


class Ec2Api:
    """The requests of one session."""

    def __init__(self, session: AwsSession) -> None:
        self._session = session
        self._unmanaged: set[str] = set()

    def fetch_account_id(self) -> str:
        """Return the twelve digits of the key's account."""
        account_id = str(call_operation(self._session, "sts", self._session.region, "get_caller_identity").get("Account", ""))
        if not account_id.isdigit():
            raise InvalidAnswerError("GetCallerIdentity names no account", provider=AWS)
        return account_id

    def list_regions(self) -> list[str]:
        """Return every region that is enabled for the account."""
        listed = self._list(self._session.region, "describe_regions", "Regions")
        regions = [str(item.get("RegionName", "")) for item in listed if item.get("OptInStatus") != "not-opted-in"]
        if not regions or not all(regions):
            raise InvalidAnswerError("DescribeRegions names no region", provider=AWS)
        return sorted(regions)

    def list_instances(self, region: str, size: int = PAGE, **params: Any) -> Iterator[list[Ec2Item]]:  # noqa: ANN401 - EC2's words
        """Yield pages of instances, including those that other AWS services run."""
        more = {} if region in self._unmanaged else {"IncludeManagedResources": True}
        try:
            yield from self._list_instances(region, size, **params, **more)
        except RefusedError as refused:
            if refused.code not in UNKNOWN_PARAMETER or not more:
                raise
            self._unmanaged.add(region)
            yield from self._list_instances(region, size, **params)

    def _list_instances(self, region: str, size: int, **params: Any) -> Iterator[list[Ec2Item]]:  # noqa: ANN401 - EC2's words
        """A reservation without an instance, which EC2 does not produce, becomes an unreadable item."""
        for page in self._read_pages(region, "describe_instances", "Reservations", size=size, **params):
            yield [item for reservation in page for item in reservation.get("Instances") or [reservation]]

    def list_volumes(self, region: str, **params: Any) -> Iterator[list[Ec2Item]]:  # noqa: ANN401 - EC2's words
        """Yield pages of EBS volumes, attached or not."""
        return self._read_pages(region, "describe_volumes", "Volumes", most=MOST_VOLUMES, **params)

    def list_addresses(self, region: str) -> list[Ec2Item]:
        """Return all Elastic IPs; this list has no pages."""
        return self._list(region, "describe_addresses", "Addresses")

    def describe_types(self, region: str, names: Sequence[str]) -> Iterator[Ec2Item]:
        """Yield those of `names` that exist in the region."""
        filters = _build_filter("instance-type", names)
        for page in self._read_pages(region, "describe_instance_types", "InstanceTypes", size=TYPES_PAGE, Filters=filters):
            yield from page

    def find_instance(self, region: str, id: str) -> Ec2Item | None:  # noqa: A002 - EC2's word
        """Return one instance; None if it does not exist.

        It is requested by a filter, because a request by id reports a missing instance as an error like any other.
        """
        return next(iter(self.list_existing(region, [id])), None)

    def list_existing(self, region: str, ids: Sequence[str]) -> list[Ec2Item]:
        """Return those of `ids`, at most 200, that are instances."""
        pages = _read_all_pages(self.list_instances(region, Filters=_build_filter("instance-id", ids)))
        return [item for item in pages if item.get("InstanceId") in ids]

    def find_volume(self, region: str, id: str) -> Ec2Item | None:  # noqa: A002 - EC2's word
        """Return one volume; None if it does not exist."""
        pages = _read_all_pages(self.list_volumes(region, Filters=_build_filter("volume-id", [id])))
        return next((item for item in pages if item.get("VolumeId") == id), None)

    def find_address(self, region: str, id: str) -> Ec2Item | None:  # noqa: A002 - EC2's word
        """Return one Elastic IP by its allocation id or, for an old one, its address; None if it does not exist."""
        kind = "allocation-id" if id.startswith("eipalloc-") else "public-ip"
        addresses = self._list(region, "describe_addresses", "Addresses", Filters=_build_filter(kind, [id]))
        return next((item for item in addresses if id in (item.get("AllocationId"), item.get("PublicIp"))), None)

    def list_protections(self, region: str, id: str) -> tuple[str, ...]:  # noqa: A002 - EC2's word
        """Return the acts that EC2 refuses until the protection of this instance is lifted: two requests."""
        if self._read_attribute(region, id, "disableApiStop"):
            return ("stop", "terminate")
        return ("terminate",) if self._read_attribute(region, id, "disableApiTermination") else ()

    def read_spot_request_type(self, region: str, id: str) -> str:  # noqa: A002 - EC2's word
        """Return a spot request's type, "one-time" or "persistent"; "" if EC2 does not state it.

        A cancelled or closed request counts as "one-time".
        """
        filters = _build_filter("spot-instance-request-id", [id])
        requests = self._list(region, "describe_spot_instance_requests", "SpotInstanceRequests", Filters=filters)
        request = next((item for item in requests if item.get("SpotInstanceRequestId") == id), {})
        return str(request.get("Type", "")) if request.get("State") not in ("cancelled", "closed") else "one-time"

    def stop(self, region: str, id: str) -> tuple[str, str]:  # noqa: A002 - EC2's word
        """Send one request, and return EC2's states before and after."""
        return self._change_state(region, "stop_instances", "StoppingInstances", id)

    def start(self, region: str, id: str) -> tuple[str, str]:  # noqa: A002 - EC2's word
        """Send one request, and return EC2's states before and after."""
        return self._change_state(region, "start_instances", "StartingInstances", id)

    def terminate(self, region: str, id: str) -> tuple[str, str]:  # noqa: A002 - EC2's word
        """Send one request, and return EC2's states before and after."""
        return self._change_state(region, "terminate_instances", "TerminatingInstances", id)

    def terminate_member(self, region: str, id: str) -> str:  # noqa: A002 - EC2's word
        """Send the auto-scaling group one request to terminate a member and reduce its desired capacity by one.

        Returns the status of the group's activity.
        """
        operation = "terminate_instance_in_auto_scaling_group"
        params = {"InstanceId": id, "ShouldDecrementDesiredCapacity": True}
        answer = call_operation(self._session, "autoscaling", region, operation, **params)
        return str(answer.get("Activity", {}).get("StatusCode", ""))

    def check_permission(self, region: str, operation: str, **more: Any) -> bool:  # noqa: ANN401 - EC2's words
        """Return True if a dry run of `operation` would have succeeded; raises the ProviderError of its failure otherwise."""
        try:
            call_operation(self._session, "ec2", region, operation, DryRun=True, **more)
        except ProviderError as said:
            if said.code == DRY_RUN:
                return True
            raise
        return True

    def _read_attribute(self, region: str, id: str, name: str) -> bool:  # noqa: A002 - EC2's word
        params = {"InstanceId": id, "Attribute": name}
        answer = call_operation(self._session, "ec2", region, "describe_instance_attribute", **params)
        return answer.get(name[0].upper() + name[1:], {}).get("Value") is True

    def _change_state(self, region: str, operation: str, key: str, id: str) -> tuple[str, str]:  # noqa: A002 - EC2's word
        changed = self._list(region, operation, key, InstanceIds=[id])
        item = next((one for one in changed if one.get("InstanceId") == id), None)
        if item is None:
            raise InvalidAnswerError(f"{operation} does not contain {id}", provider=AWS)
        return item.get("PreviousState", {}).get("Name", ""), item.get("CurrentState", {}).get("Name", "")

    def _list(self, region: str, operation: str, key: str, **params: Any) -> list[Ec2Item]:  # noqa: ANN401 - EC2's words
        return _find_rows(call_operation(self._session, "ec2", region, operation, **params), key, operation)

    def _read_pages(
        self,
        region: str,
        operation: str,
        key: str,
        *,
        size: int = PAGE,
        most: int = MOST_ITEMS,
        **params: Any,  # noqa: ANN401 - EC2's words
    ) -> Iterator[list[Ec2Item]]:
        """Yield each page.

        Raises a ProviderError if the first page fails, CutShortError if a later one does or the list has no end.
        """
        pages, number, count = read_pages(self._session, "ec2", region, operation, size=size, most=MOST_PAGES, **params), 0, 0
        while True:
            number += 1
            try:
                page = next(pages, None)
                rows = _find_rows(page, key, operation) if page is not None else None
            except ProviderError as broken:
                if number == 1:
                    raise
                raise CutShortError(f"page {number} of {operation} was lost: {broken.what}") from None
            if page is None or rows is None:
                return
            count += len(rows)
            yield rows
            if count >= most and page.get("NextToken"):
                raise CutShortError(f"{operation} has more than {most} items")


def _find_rows(answer: Mapping[str, Any], key: str, operation: str) -> list[Ec2Item]:
    """Return the list `key`; raises InvalidAnswerError if it is missing: a missing list is not an empty one."""
    rows = answer.get(key)
    if not isinstance(rows, list):
        raise InvalidAnswerError(f"{operation} answered without its {key}", provider=AWS)
    return rows


def _read_all_pages(pages: Iterator[list[Ec2Item]]) -> list[Ec2Item]:
    """Return every item: a filter's matches may be on any page, and only the last one shows that there are none."""
    try:
        return [item for page in pages for item in page]
    except CutShortError as short:
        raise InvalidAnswerError(str(short), provider=AWS) from None


def _build_filter(name: str, values: Sequence[str]) -> list[dict[str, Any]]:
    return [{"Name": name, "Values": list(values)}]
