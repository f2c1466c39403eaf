"""Proofs of client and server on a local socket, and hellos that are none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.protos.local_frames import ABSTRACT, HEADER, MAX_HELLO_BYTES, MESSAGE, Hello, pack_frame, socket_name

texts = st.text(min_size=1, max_size=40)


@given(key=texts, token=st.none() | texts, other=texts)
def test_a_hello_proves_what_its_client_knows(key: str, token: str | None, other: str) -> None:
    sent = Hello.make(key, token)
    content = sent.pack()
    assert len(content) <= MAX_HELLO_BYTES
    found = Hello.parse(content)
    assert found == sent
    assert found.has_key(key)
    assert found.has_key(other) == (other == key)
    assert found.has_token(other) == (other == token)
    assert sent.is_welcomed(found.welcome(key), key)
    assert sent.is_welcomed(found.welcome(other), key) == (other == key)


def test_neither_key_nor_token_is_sent() -> None:
    content = Hello.make("the-key", "the-token").pack() + Hello.make("the-key", None).welcome("the-key")
    assert b"the-key" not in content
    assert b"the-token" not in content


def test_a_proof_is_of_no_use_to_others() -> None:
    """Nor is that of one side to the other."""
    first, second = (Hello.make("key", "token") for _ in range(2))
    assert first.nonce != second.nonce
    assert not Hello(second.nonce, first.key, first.token).has_key("key")
    assert not Hello(second.nonce, first.key, first.token).has_token("token")
    assert not Hello(first.nonce, first.welcome("key").decode()).has_key("key")
    assert not first.is_welcomed(first.key.encode(), "key")


@given(st.binary(max_size=200))
def test_random_bytes_are_no_hello(content: bytes) -> None:
    with pytest.raises(ValueError, match="expected"):
        Hello.parse(content)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner), max_leaves=5
)


@given(st.dictionaries(st.sampled_from(["nonce", "key", "token", "more"]), json_values) | json_values)
def test_other_values_are_no_hello(found: object) -> None:
    content = json.dumps(found).encode()
    try:
        hello = Hello.parse(content)
    except ValueError:
        return
    assert not hello.has_key("key")


def test_nesting_is_no_hello() -> None:
    with pytest.raises(ValueError, match="expected"):
        Hello.parse(b"[" * 100_000)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=50))
def test_frames(kind: int, content: bytes) -> None:
    frame = pack_frame(kind, content)
    assert frame == len(content).to_bytes(4, "little") + kind.to_bytes(4, "little") + content
    assert HEADER.unpack_from(frame) == (len(content), kind)


def test_names_of_sockets() -> None:
    assert socket_name(f"{ABSTRACT}worldloom-1") == "\0worldloom-1"
    assert socket_name("/run/worldloom.sock") == "/run/worldloom.sock"
    assert pack_frame(MESSAGE, b"")[4:] == bytes(4)
