from __future__ import annotations

import gzip
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.http.grpc_framing import frame, only_message, percent_encode, timeout_seconds
from evaluator.http.messages import Code, RpcError


def compress(message: bytes) -> bytes:
    return b"\1" + frame(gzip.compress(message, mtime=0))[1:]


@given(message=st.binary(max_size=300), zipped=st.booleans())
@settings(max_examples=50)
def test_a_framed_message_is_read_back(message: bytes, zipped: bool) -> None:
    body = compress(message) if zipped else frame(message)
    assert only_message(body, "gzip", 400) == message


@pytest.mark.parametrize(
    ("body", "encoding", "code"),
    [
        (b"", None, Code.INTERNAL),
        (b"\0\0\0", None, Code.INTERNAL),
        (frame(b"a") + frame(b"b"), None, Code.INTERNAL),
        (frame(b"abc")[:-1], None, Code.INTERNAL),
        (b"\0\xff\xff\xff\xff", None, Code.INTERNAL),
        (b"\2\0\0\0\0", "gzip", Code.INTERNAL),
        (compress(b"a"), None, Code.INTERNAL),
        (compress(b"a"), "identity", Code.INTERNAL),
        (compress(b"a"), "snappy", Code.UNIMPLEMENTED),
        (b"\1" + frame(b"not gzip")[1:], "gzip", Code.INTERNAL),
        (b"\1" + frame(gzip.compress(b"abc", mtime=0)[:-3])[1:], "gzip", Code.INTERNAL),
        (b"\1" + frame(gzip.compress(b"abc", mtime=0) + b"more")[1:], "gzip", Code.INTERNAL),
        (frame(bytes(1001)), None, Code.RESOURCE_EXHAUSTED),
        (compress(bytes(1001)), "gzip", Code.RESOURCE_EXHAUSTED),
    ],
    ids=[
        "empty", "no prefix", "two messages", "cut short", "4 GiB promised", "unknown flag",
        "compressed, by nothing", "compressed, by identity", "unknown encoding", "not gzip", "gzip cut short",
        "more behind gzip", "too large", "too large once inflated",
    ],
)  # fmt: skip
def test_a_body_that_is_not_one_message_has_its_status(body: bytes, encoding: str | None, code: Code) -> None:
    with pytest.raises(RpcError) as caught:
        only_message(body, encoding, 1000)
    assert caught.value.code is code


def test_a_message_may_be_as_large_as_the_limit_compressed_or_not() -> None:
    assert only_message(frame(bytes(1000)), None, 1000) == bytes(1000)
    assert only_message(compress(bytes(1000)), "gzip", 1000) == bytes(1000)


def test_without_a_limit_any_size_is_read() -> None:
    assert only_message(compress(bytes(1_000_000)), "gzip", 0) == bytes(1_000_000)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("1H", 3600), ("2M", 120), ("99999999S", 99_999_999), ("250m", 0.25), ("1u", 1e-6), ("5n", 5e-9)],
)
def test_a_timeout_is_read_in_its_unit(value: str, seconds: float) -> None:
    assert timeout_seconds(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", ["", "S", "1", "123456789S", "-1S", "1.5S", "1s", "1 S", "²S"])
def test_a_malformed_timeout_is_refused(value: str) -> None:
    with pytest.raises(RpcError, match="malformed grpc-timeout"):
        timeout_seconds(value)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
@settings(max_examples=100)
def test_a_status_message_survives_as_printable_ascii(message: str) -> None:
    sent = percent_encode(message)
    assert sent.isascii()
    assert sent.isprintable()
    assert unquote(sent) == message


def test_a_status_message_with_half_a_character_is_still_sent() -> None:
    assert percent_encode("a\ud800") == "a?"
