r"""Changed inputs: a seed, or one that once failed, with pieces replaced, repeated, nested, cut and put together by hypothesis.

An input is a name, a line break and the content: `a.yaml\nbase_model: gpt2`. The name says which reader the content is for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import strategies as st

TOKEN = re.compile(rb'"[^"\n]{0,80}"|[A-Za-z_][\w.-]*|-?\d[\w.+-]*|[^\w\s]')
TOKENS_WITHIN = 20_000
"""Bytes of an input in which a token is replaced."""
CHANGES_MAX = 6
TIMES = (2, 30, 1_000, 20_000, 300_000)
ODD = (
    *(b"0", b"-1", b"1e999999999", b"1E-400000", b"-0.0", b"9" * 5_000, b"0x" + b"f" * 4_000, b"NaN", b"Infinity", b"1_0"),
    *(b"true", b"null", b"~", b'""', b"''", b"[]", b"{}", b'"\\ud800"', b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\t"),
    *(b'"' + b"a" * 5_000 + b'"', b"a-" * 2_000, b"$" * 300, b"../../etc/passwd", b"/dev/zero", b"file:///etc/passwd"),
    *(b"=cmd()", b"x;=1", b"@ana", b"#1", b"https://e.example", b"`a|b`", b"<img src=x>", b"\xe2\x80\xae", b"\x1b[2J"),
    *(b"&a [*a, *a]", b"*a", b"<<: *a", b"!!int 1:1", b"!!python/name:a", b"{{x}}", b"${A:-$A}", b"$(A)", b"\\", b"---\n"),
    *(b"9999-12-31T23:59:59Z", b"0001-01-01T00:00:00", b"2026-13-45", b"-99999-01-01", b"1e18", b"18446744073709551616"),
    *(b"1" + b"0" * 400, b"a." * 100, b"[[a]]", b"'''", b'"""', b"# ", b"<<E\n", b"; ", b" && ", b"%n", b"PAR1", b"PK\x03\x04"),
)  # fmt: skip
NESTS = (
    (b"[", b"]"),
    (b'{"a":', b"}"),
    (b"(", b")"),
    (b'"', b'"'),
    (b"- ", b""),
    (b"{{", b"}}"),
    (b"a:\n ", b""),
    (b"[x.", b"]"),
)


@st.composite
def change_inputs(draw: st.DrawFn, seeds: Sequence[bytes], bytes_max: int) -> bytes:
    """Return a strategy of inputs of at most `bytes_max`, made of `seeds`."""
    name, _, content = draw(st.sampled_from(seeds)).partition(b"\n")
    for _ in range(draw(st.integers(0, CHANGES_MAX))):
        content = draw(st.sampled_from(CHANGES))(draw, content, seeds, bytes_max)[:bytes_max]
    if draw(st.integers(0, 9)) == 0:
        name = draw(st.sampled_from(seeds)).partition(b"\n")[0]
    return name + b"\n" + content


def _replace_token(draw: st.DrawFn, content: bytes, _: Sequence[bytes], __: int) -> bytes:
    token, other = (TOKEN.search(content, draw(st.integers(0, min(len(content), TOKENS_WITHIN)))) for _ in range(2))
    if token is None:
        return content + draw(st.sampled_from(ODD))
    odd = draw(st.sampled_from(ODD) | st.just(other[0] if other else b"") | st.binary(max_size=8))
    quoted = token[0].startswith(b'"') and draw(st.booleans())
    return content[: token.start()] + (b'"' + odd + b'"' if quoted else odd) + content[token.end() :]


def _insert(draw: st.DrawFn, content: bytes, _: Sequence[bytes], __: int) -> bytes:
    at = draw(st.integers(0, len(content)))
    return content[:at] + draw(st.sampled_from(ODD) | st.binary(max_size=8)) + content[at:]


def _repeat(draw: st.DrawFn, content: bytes, _: Sequence[bytes], bytes_max: int) -> bytes:
    start, end = _choose_slice(draw, content)
    times = min(draw(st.sampled_from(TIMES)), bytes_max // max(1, end - start))
    return content[:start] + content[start:end] * times + content[end:]


def _nest(draw: st.DrawFn, content: bytes, _: Sequence[bytes], bytes_max: int) -> bytes:
    (left, right), times = draw(st.sampled_from(NESTS)), min(draw(st.sampled_from(TIMES)), bytes_max // 10)
    start, end = _choose_slice(draw, content)
    return content[:start] + left * times + content[start:end] + right * times + content[end:]


def _cut(draw: st.DrawFn, content: bytes, _: Sequence[bytes], __: int) -> bytes:
    start, end = _choose_slice(draw, content)
    return content[:start] + content[end:]


def _splice(draw: st.DrawFn, content: bytes, seeds: Sequence[bytes], _: int) -> bytes:
    other = draw(st.sampled_from(seeds)).partition(b"\n")[2]
    start, end = _choose_slice(draw, other)
    at = draw(st.integers(0, len(content)))
    return content[:at] + other[start:end] + content[at:]


def _choose_slice(draw: st.DrawFn, content: bytes) -> tuple[int, int]:
    start = draw(st.integers(0, len(content)))
    length = draw(st.integers(0, 40) | st.integers(0, len(content) - start))
    return start, min(len(content), start + length)


CHANGES = (_replace_token, _replace_token, _replace_token, _insert, _repeat, _nest, _cut, _splice)
