"""The little of S3 that reading an export needs: listing by prefix, in pages, and getting an object."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from tests.fakes.server import Answer, Asked


@dataclass(slots=True)
class FakeS3:
    """`objects`: (bucket, key) -> bytes. `page`: keys a page."""

    objects: dict[tuple[str, str], bytes] = field(default_factory=dict)
    page: int = 1000

    def answer(self, asked: Asked) -> Answer | None:
        """The answer to a GET of a bucket or an object, addressed by path; None for any other request."""
        bucket, _, key = asked.path.lstrip("/").partition("/")
        if asked.method != "GET" or not bucket:
            return None
        if key:
            held = self.objects.get((bucket, key))
            return _error("NoSuchKey", 404) if held is None else Answer(headers={"Content-Type": "text/csv"}, body=held)
        keys = sorted(k for b, k in self.objects if b == bucket and k.startswith(asked.one("prefix")))
        first = int(asked.one("continuation-token", "0"))
        last = first + self.page
        items = "".join(
            f"<Contents><Key>{escape(k)}</Key><Size>{len(self.objects[bucket, k])}</Size></Contents>" for k in keys[first:last]
        )
        more = f"<NextContinuationToken>{last}</NextContinuationToken>" if last < len(keys) else ""
        body = f'<?xml version="1.0"?><ListBucketResult>{items}{more}</ListBucketResult>'
        return Answer(headers={"Content-Type": "application/xml"}, body=body.encode())


def _error(code: str, status: int) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
    return Answer(status=status, headers={"Content-Type": "application/xml"}, body=body.encode())
