"""AWS for the contract suite, with moto's EC2 behind our own signatures, prices and faults.

moto is written by others. It says what EC2 does: launches, listings and their pages, filters, types, protections, dry runs and
acts.
Four things that it does not do are done here: an odd element, a page of one machine, an act that is accepted and not carried
out, and a launch time that moves when a machine starts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from itertools import count as count_up
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

from tests.fakes import aws_ec2_xml
from tests.fakes.aws import KEY_ID, SECRET, FakeAws, Key
from tests.fakes.aws_ec2 import FakeEc2
from tests.fakes.aws_wire import ec2_xml
from tests.fakes.server import Answer, Hands
from tests.providers.aws import rig as simulated

IMAGE, REGION = "ami-1e749f67", "us-east-1"
"""One of moto's images of Linux."""
ACCOUNTS = count_up(200000000001)
"""An account a rig: moto's state is the process's, and two rigs may stand beside each other."""
EC2 = {"ec2": "http://ec2.amazonaws.com/doc/2016-11-15"}
ACTS = {"StopInstances": "stopping", "TerminateInstances": "shutting-down", "StartInstances": "pending"}
"""Act -> the state that EC2 answers with."""


@cache
def moto_client() -> Any:  # noqa: ANN401 - moto has no types
    """A client of moto's server in this process, without a socket."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.test import Client

    return Client(DomainDispatcherApplication(create_backend_app))


class MotoEc2(FakeEc2):
    """EC2 by moto. `page`, `more`, `tags` and `deaf` as `FakeEc2` has them; it holds no `resources`."""

    def __init__(self, clock: Hands, account: str) -> None:
        super().__init__()
        self.clock, self.account = clock, account

    def answer(self, form: Mapping[str, str], account: str, region: str, now_us: int) -> Answer:  # noqa: ARG002 - FakeEc2's
        """The answer to one request."""
        action = form.get("Action", "")
        if self.deaf and action in ACTS and form.get("DryRun") != "true":
            state = aws_ec2_xml.state_item("currentState", ACTS[action])
            return ec2_xml(
                action, f"<instancesSet><item><instanceId>{form['InstanceId.1']}</instanceId>{state}</item></instancesSet>"
            )
        if "MaxResults" in form and action == "DescribeInstances":
            form = {**form, "MaxResults": str(min(self.page, int(form["MaxResults"])))}
        answer = self.ask(form, region)
        if action == "StartInstances" and answer.status == 200:
            self.instance(form["InstanceId.1"]).launch_time = self.clock.now().replace(tzinfo=None)
        return self.with_odd_elements(answer) if action == "DescribeInstances" and (self.more or self.tags) else answer

    def ask(self, form: Mapping[str, str], region: str = REGION) -> Answer:
        """The answer of moto alone."""
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "x-moto-account-id": self.account,
            "Authorization": f"AWS4-HMAC-SHA256 Credential=A/20261121/{region}/ec2/aws4_request, SignedHeaders=, Signature=",
        }
        reply = moto_client().post("/", data=urlencode(form), headers=headers, base_url=f"http://ec2.{region}.amazonaws.com")
        return Answer(status=reply.status_code, headers={"Content-Type": "text/xml;charset=UTF-8"}, body=reply.get_data())

    def backend(self) -> Any:  # noqa: ANN401 - moto has no types
        """What moto holds of the account in its first region."""
        from moto.backends import get_backend

        return get_backend("ec2")[self.account][REGION]

    def instance(self, id_: str) -> Any:  # noqa: ANN401 - moto has no types
        """The instance of this id, as moto holds it."""
        return self.backend().get_instance(id_)

    def with_odd_elements(self, answer: Answer) -> Answer:
        """The listing with the elements and tags that a test put there."""
        ET.register_namespace("", EC2["ec2"])
        root = ET.fromstring(answer.body)  # noqa: S314 - moto's
        for item in root.iterfind(".//ec2:instancesSet/ec2:item", EC2):
            id_ = item.findtext("ec2:instanceId", "", EC2)
            for name, value in self.more.get(id_, {}).items():
                _set_element(item, name, value)
            for tags in item.iterfind("ec2:tagSet", EC2):
                for name, value in self.tags.get(id_, {}).items():
                    _set_tag(tags, name, value)
        return Answer(status=answer.status, headers=answer.headers, body=ET.tostring(root))


def _set_element(item: ET.Element, name: str, value: object) -> None:
    """Replace an element's content by `value`; None empties it, `...` removes it."""
    element = item.find(f"ec2:{name}", EC2)
    if element is not None:
        item.remove(element)
    if value is ...:
        return
    added = ET.SubElement(item, f"{{{EC2['ec2']}}}{name}")
    if name == "instanceState" and value is not None:
        added = ET.SubElement(added, f"{{{EC2['ec2']}}}name")
    added.text = None if value is None else aws_ec2_xml.clean_text(value)


def _set_tag(tags: ET.Element, name: str, value: object) -> None:
    for tag in [tag for tag in tags if tag.findtext("ec2:key", "", EC2) == name]:
        tags.remove(tag)
    if value is not ...:
        tag = ET.SubElement(tags, f"{{{EC2['ec2']}}}item")
        ET.SubElement(tag, f"{{{EC2['ec2']}}}key").text = name
        if value is not None:
            ET.SubElement(tag, f"{{{EC2['ec2']}}}value").text = aws_ec2_xml.clean_text(value)


class MotoRig(simulated.AwsRig):
    """One key, one account, one region of moto. Its clock begins now, because moto's launch times do."""

    ec2: MotoEc2

    def make_fake(self) -> FakeAws:
        self.clock.at = datetime.now(UTC)
        fake = FakeAws(self.clock)
        account = str(next(ACCOUNTS))
        fake.keys = {KEY_ID: Key(SECRET, account)}
        fake.ec2 = self.ec2 = MotoEc2(self.clock, account)
        fake.pricing.rates["g5.xlarge", REGION] = Decimal("1.006")
        return fake

    def table(self, base: str) -> Mapping[str, object]:
        return {**super().table(base), "accounts": [self.ec2.account]}

    def put(self, count: int) -> list[str]:
        """Each in a reservation of its own: moto's pages are of reservations."""
        tags = {"Name": "train", "owner": "alice", "project": "llm"}
        form = {"Action": "RunInstances", "ImageId": IMAGE, "InstanceType": "g5.xlarge", "MinCount": "1", "MaxCount": "1"}
        form["TagSpecification.1.ResourceType"] = "instance"
        for number, (name, value) in enumerate(tags.items(), start=1):
            form |= {f"TagSpecification.1.Tag.{number}.Key": name, f"TagSpecification.1.Tag.{number}.Value": value}
        answers = [ET.fromstring(self.ec2.ask(form).body) for _ in range(count)]  # noqa: S314 - moto's
        return [root.findtext(".//ec2:instanceId", "", EC2) for root in answers]

    def state_of(self, id: str) -> str:  # noqa: A002 - the ledger's word
        word = str(self.ec2.instance(id)._state.name)
        return {"shutting-down": "ended", "terminated": "ended", "stopping": "stopped"}.get(word, word)

    def let(self, id: str, state: str) -> None:  # noqa: A002 - the ledger's word
        instance = self.ec2.instance(id)
        {"running": instance.start, "stopped": instance.stop, "ended": instance.terminate}[state]()

    def shuffle(self) -> bool:
        return False
