"""What EC2's XML is made of: elements that a test may override, words with their codes, and the types that the fake knows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from costguard_sim.world import Resource, Run, from_us

CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
WORDS = {"ended": "terminated"}
TYPES: dict[str, str] = {
    "c7i.4xlarge": "",
    "g5.xlarge": "<gpuInfo><gpus><item><name>A10G</name><manufacturer>NVIDIA</manufacturer><count>1</count><memoryInfo>"
    "<sizeInMiB>22888</sizeInMiB></memoryInfo></item></gpus><totalGpuMemoryInMiB>22888</totalGpuMemoryInMiB></gpuInfo>",
    "p4d.24xlarge": "<gpuInfo><gpus><item><name>A100</name><manufacturer>NVIDIA</manufacturer><count>8</count><memoryInfo>"
    "<sizeInMiB>40960</sizeInMiB></memoryInfo></item></gpus><totalGpuMemoryInMiB>327680</totalGpuMemoryInMiB></gpuInfo>",
    "p5.48xlarge": "<gpuInfo><gpus><item><name>H100</name><manufacturer>NVIDIA</manufacturer><count>8</count><memoryInfo>"
    "<sizeInMiB>81920</sizeInMiB></memoryInfo></item></gpus><totalGpuMemoryInMiB>655360</totalGpuMemoryInMiB></gpuInfo>",
    "g6f.xlarge": "<gpuInfo><gpus><item><name>L4</name><manufacturer>NVIDIA</manufacturer><count>0</count><logicalGpuCount>1"
    "</logicalGpuCount><gpuPartitionSize>0.125</gpuPartitionSize><memoryInfo><sizeInMiB>2861</sizeInMiB></memoryInfo></item>"
    "</gpus><totalGpuMemoryInMiB>2861</totalGpuMemoryInMiB></gpuInfo>",
    "trn2.48xlarge": "<neuronInfo><neuronDevices><item><count>16</count><name>Trainium2</name><memoryInfo><sizeInMiB>524288"
    "</sizeInMiB></memoryInfo></item></neuronDevices><totalNeuronDeviceMemoryInMiB>8388608</totalNeuronDeviceMemoryInMiB>"
    "</neuronInfo>",
    "g9z.xlarge": "<gpuInfo><gpus><item><name>Z9000</name><manufacturer>Zebra</manufacturer><count>2</count><memoryInfo>"
    "<sizeInMiB>999999</sizeInMiB></memoryInfo></item></gpus></gpuInfo>",
}
"""Type -> its accelerators as DescribeInstanceTypes has them; a type that is not here EC2 does not know."""
LOCAL_GB = {"g5.xlarge": 250, "p4d.24xlarge": 8000, "p5.48xlarge": 30400}


def wire_id(id_: str) -> str:
    """An id as EC2 writes it, with 17 hexadecimal digits, of one of the simulated world."""
    prefix, _, mark = id_.rpartition("-")
    prefix = {"ip": "eipalloc"}.get(prefix, prefix)
    return f"{prefix}-{mark.zfill(17)}"


def disk_id(id_: str, number: int) -> str:
    """The id of the `number`-th disk of an instance: EC2 lists it as a volume of its own."""
    return f"vol-{hashlib.sha256(f'{id_}/{number}'.encode()).hexdigest()[:17]}"


def stamp(us: int) -> str:
    """An instant as EC2 writes it."""
    return f"{from_us(us):%Y-%m-%dT%H:%M:%S}.000Z"


def reason_of(one: Resource, run: Run | None, word: str) -> str:
    """When somebody stopped or ended it, in EC2's words."""
    at = one.ended_us if word == "terminated" else run.stop_us if run and word == "stopped" else None
    return f"User initiated ({from_us(at):%Y-%m-%d %H:%M:%S} GMT)" if at is not None else ""


def interface_of(one: Resource) -> str:
    """Its first network interface, attached when it was launched first."""
    attachment = f"<deviceIndex>0</deviceIndex><attachTime>{stamp(one.created_us)}</attachTime>"
    return f"<item><networkInterfaceId>eni-0a</networkInterfaceId><attachment>{attachment}</attachment></item>"


def type_item(name: str) -> str:
    """A type as DescribeInstanceTypes has it."""
    disks = (
        f"<instanceStorageInfo><totalSizeInGB>{LOCAL_GB[name]}</totalSizeInGB></instanceStorageInfo>"
        if name in LOCAL_GB
        else ""
    )
    sizes = "<vCpuInfo><defaultVCpus>16</defaultVCpus></vCpuInfo><memoryInfo><sizeInMiB>65536</sizeInMiB></memoryInfo>"
    return f"<item><instanceType>{name}</instanceType>{sizes}{disks}{TYPES[name]}</item>"


def state_item(name: str, word: str) -> str:
    """A state with its code."""
    return f"<{name}><code>{CODES[word]}</code><name>{word}</name></{name}>"


def elements(fields: Mapping[str, str | None], more: Mapping[str, Any]) -> str:
    """The elements of one item; those of `more` in place of the usual ones. Texts that begin with "<" are XML already."""
    every: dict[str, Any] = {**fields, **more}
    return "".join(f"<{name}>{_inner(name, value)}</{name}>" for name, value in every.items() if value is not ...)


def _inner(name: str, value: Any) -> str:  # noqa: ANN401 - whatever a test puts there
    if value is None:
        return ""
    if name == "instanceState" and not str(value).startswith("<code>"):
        return f"<code>16</code><name>{text(value)}</name>"
    return str(value) if isinstance(value, str) and value.startswith("<") else text(value)


_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def text(value: object) -> str:
    """`value` as XML 1.0 can hold it: AWS itself holds no other characters."""
    return escape(clean_text(value))


def clean_text(value: object) -> str:
    """`value` without the characters that XML 1.0 cannot hold."""
    return _NO_XML.sub("\ufffd", str(value))
