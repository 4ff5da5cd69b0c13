"""How AWS writes its answers: JSON 1.1, CBOR by botocore's own shapes, and the XML of EC2. Shared by the fakes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from functools import cache
from io import BufferedReader, BytesIO
from typing import Any, cast
from xml.sax.saxutils import escape

from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.parsers import RpcV2CBORParser
from botocore.serialize import RpcV2CBORSerializer

from tests.fakes.server import Answer, Asked


@cache
def model(service: str) -> ServiceModel:
    """Botocore's model of a service: what its requests and answers must look like."""
    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


def amz_json(value: object, status: int = 200) -> Answer:
    """An answer of JSON 1.1 (Pricing, Cost Explorer)."""
    headers = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-RequestId": str(uuid.UUID(int=7))}
    return Answer(status=status, headers=headers, body=json.dumps(value).encode())


def amz_json_error(code: str, message: str, status: int = 400) -> Answer:
    """An error of JSON 1.1: its code stands in the body."""
    return amz_json({"__type": f"com.amazonaws.fake#{code}", "message": message}, status)


def target_of(asked: Asked) -> tuple[str, str]:
    """(service prefix, operation) of a JSON 1.1 request; two empty texts for any other."""
    prefix, _, operation = asked.headers.get("x-amz-target", "").partition(".")
    return prefix, operation


def cbor_operation(asked: Asked) -> str:
    """The operation of an RPC v2 request: `/service/GraniteServiceVersion20100801/operation/ListMetrics`; "" for any other."""
    parts = asked.path.strip("/").split("/")
    return parts[3] if len(parts) == 4 and parts[0] == "service" and parts[2] == "operation" else ""


def read_cbor(body: bytes) -> Any:  # noqa: ANN401 - whatever the body holds
    """A CBOR body as plain values; a timestamp becomes an aware datetime."""
    parser = RpcV2CBORParser()
    return parser.parse_data_item(cast("Any", BufferedReader(BytesIO(body))))


def cbor(service: str, operation: str, value: Mapping[str, Any]) -> Answer:
    """An answer of RPC v2, written by the operation's output shape: a value that does not fit it fails the test."""
    body = bytearray()
    shape = model(service).operation_model(operation).output_shape
    RpcV2CBORSerializer()._serialize_data_item(body, value, shape)
    return Answer(headers=_CBOR, body=bytes(body))


def cbor_error(code: str, message: str, status: int = 400) -> Answer:
    """An error of RPC v2."""
    body = _cbor_map({"__type": f"com.amazonaws.cloudwatch#{code}", "message": message})
    return Answer(status=status, headers={**_CBOR, "x-amzn-query-error": f"{code};Sender"}, body=body)


_CBOR = {"Content-Type": "application/cbor", "smithy-protocol": "rpc-v2-cbor"}


def _cbor_map(pairs: Mapping[str, str]) -> bytes:
    """A small map of texts."""
    made = bytes((0xA0 | len(pairs),))
    for text in (part for pair in pairs.items() for part in pair):
        raw = text.encode()
        made += (bytes((0x60 | len(raw),)) if len(raw) < 24 else bytes((0x78, len(raw)))) + raw
    return made


def ec2_xml(action: str, inner: str) -> Answer:
    """An answer of EC2."""
    head = f'<{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>{uuid.UUID(int=7)}</requestId>'
    return Answer(headers={"Content-Type": "text/xml;charset=UTF-8"}, body=f"{head}{inner}</{action}Response>".encode())


def ec2_error(code: str, message: str, status: int = 400) -> Answer:
    """An error of EC2."""
    inner = f"<Errors><Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error></Errors>"
    body = f'<?xml version="1.0" encoding="UTF-8"?><Response>{inner}<RequestID>{uuid.UUID(int=7)}</RequestID></Response>'
    return Answer(status=status, headers={"Content-Type": "text/xml;charset=UTF-8"}, body=body.encode())
