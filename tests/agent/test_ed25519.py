"""The signatures of the agent: RFC 8032's own examples, and agreement with the library the watchdog verifies with."""

from __future__ import annotations

import pytest
from costguard_agent import ed25519, protocol
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.values.sample import SIGNALS

# RFC 8032, section 7.1: secret key, public key, message, signature.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
    (
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704",
    ),
]
SECRETS = st.binary(min_size=32, max_size=32)


@pytest.mark.parametrize(("secret", "public", "text", "signature"), VECTORS)
def test_it_signs_as_the_rfc_does(secret: str, public: str, text: str, signature: str) -> None:
    key = bytes.fromhex(secret)
    assert ed25519.derive_public_key(key).hex() == public
    assert ed25519.sign(key, bytes.fromhex(text)).hex() == signature
    assert ed25519.verify(bytes.fromhex(public), bytes.fromhex(text), bytes.fromhex(signature))


@settings(max_examples=25, deadline=None)
@given(secret=SECRETS, text=st.binary(max_size=200))
def test_it_agrees_with_the_library_on_keys_and_signatures(secret: bytes, text: bytes) -> None:
    theirs = Ed25519PrivateKey.from_private_bytes(secret)
    assert ed25519.derive_public_key(secret) == theirs.public_key().public_bytes_raw()
    assert ed25519.sign(secret, text) == theirs.sign(text)


@settings(max_examples=25, deadline=None)
@given(secret=SECRETS, text=st.binary(max_size=50), at=st.integers(0, 63), flip=st.integers(1, 255))
def test_a_changed_signature_is_refused_by_both(secret: bytes, text: bytes, at: int, flip: int) -> None:
    public = ed25519.derive_public_key(secret)
    signature = bytearray(ed25519.sign(secret, text))
    signature[at] ^= flip
    assert not ed25519.verify(public, text, bytes(signature))
    with pytest.raises(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(public).verify(bytes(signature), text)


def test_another_text_or_a_key_of_another_length_is_refused() -> None:
    secret = bytes(32)
    signature = ed25519.sign(secret, b"one")
    assert not ed25519.verify(ed25519.derive_public_key(secret), b"two", signature)
    assert not ed25519.verify(b"short", b"one", signature)
    with pytest.raises(ValueError, match="32 bytes, not 5"):
        ed25519.sign(b"short", b"one")


def test_agent_and_watchdog_know_the_same_signals() -> None:
    assert set(protocol.SIGNALS) == set(SIGNALS)
    assert len(protocol.SIGNALS) == len(set(protocol.SIGNALS))


def test_every_field_of_a_message_is_part_of_what_is_signed() -> None:
    def text(seq: int = 1, at_ms: int = 2, **others: str) -> bytes:
        said = {"method": "POST", "path": "/a", "agent": "x", "body": "{}", **others}
        return protocol.build_signed_request(
            said["method"], said["path"], agent=said["agent"], seq=seq, at_ms=at_ms, body=said["body"].encode()
        )

    others = [text(method="GET"), text(path="/b"), text(agent="y"), text(seq=2), text(at_ms=3), text(body="[]")]
    assert len({text(), *others}) == 7
    assert protocol.build_signed_answer(agent="x", seq=1, at_ms=2, body=b"{}") != text()
