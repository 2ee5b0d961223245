"""gRPC over HTTP/2, as bytes: message framing, compression, time limits, statuses.

Source of the format: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md and compression.md beside
it.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from evaluator.http.h2.headers.hpack import encode_block
from evaluator.http.messages import Code, Framing, Headers, RpcError, header

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX: Final = 5
"""Bytes before a message: a compressed flag, then the length in 4 bytes."""
ENCODINGS: Final = ("grpc-accept-encoding", "identity,gzip")
SHARED_BYTES: Final = 8_192
"""Of a message that goes out apart from its prefix."""
MESSAGE_CHARACTERS: Final = 1_000
"""Clients refuse header blocks of more than 8 KiB, and a character may grow to 12 bytes."""

_PRINTABLE: Final = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_GZIP_WINDOW: Final = 31

START: Final = encode_block([(":status", "200"), ("content-type", "application/grpc"), ENCODINGS])
"""Response headers of a call that may have messages."""
TRAILERS: Final = encode_block([("grpc-status", "0")])
"""Trailers of a call that ended well."""


def frame(message: bytes) -> bytes:
    """`message` behind its prefix, uncompressed."""
    return prefix(message) + message


def prefix(message: bytes) -> bytes:
    """What stands before `message` on the wire: not compressed, and its length."""
    return b"\0" + len(message).to_bytes(4, "big")


def envelope(message: bytes) -> Sequence[bytes]:
    """`message` behind its prefix; a large one stays apart, so that slow peers share one copy."""
    return (prefix(message), message) if len(message) > SHARED_BYTES else (frame(message),)


def only_message(body: bytes, encoding: str | None, limit: int, broken: Code = Code.INTERNAL) -> bytes:
    """The one message that `body` frames, decompressed to at most `limit` bytes (0: no limit).

    Raises RpcError: `broken` for framing or compression that is, UNIMPLEMENTED for an encoding that we do not
    know, RESOURCE_EXHAUSTED for a message that is too large.
    """
    length = int.from_bytes(body[1:PREFIX], "big")
    if len(body) < PREFIX or length != len(body) - PREFIX:
        raise RpcError(broken, "the request must be exactly one message")
    message = body[PREFIX:]
    if limit and length > limit:
        raise RpcError(Code.RESOURCE_EXHAUSTED, f"message of {length} bytes, of {limit} allowed")
    if body[0] == 0:
        return message
    if body[0] != 1 or encoding in {None, "identity"}:
        raise RpcError(broken, "compressed flag set, but no encoding named")
    return expand(message, encoding, limit, broken)


def expand(message: bytes, encoding: str | None, limit: int, broken: Code) -> bytes:
    """`message` without its encoding. Raises RpcError as `only_message` does."""
    if encoding is None or encoding == "identity":
        return message
    if encoding != "gzip":
        raise RpcError(Code.UNIMPLEMENTED, f"unknown encoding {encoding[:50]!r}: gzip and identity are known")
    inflater = zlib.decompressobj(_GZIP_WINDOW)
    try:
        # One more byte than allowed shows a message that is too large, without inflating the rest of it.
        plain = inflater.decompress(message, limit + 1 if limit else 0)
    except zlib.error as error:
        raise RpcError(broken, "the message is not gzip") from error
    if limit and len(plain) > limit:
        raise RpcError(Code.RESOURCE_EXHAUSTED, f"message of over {limit} bytes once decompressed")
    if not inflater.eof or inflater.unused_data:
        raise RpcError(broken, "the gzip message is cut short or has more behind it")
    return plain


def timeout_seconds(value: str) -> float:
    """Seconds of a `grpc-timeout`: 1 to 8 ASCII digits and a unit. Raises RpcError INTERNAL otherwise."""
    digits, unit = value[:-1], _UNITS.get(value[-1:])
    if unit is None or not (0 < len(digits) <= 8 and digits.isascii() and digits.isdigit()):
        raise RpcError(Code.INTERNAL, "malformed grpc-timeout")
    return int(digits) * unit


def grpc_timeout(headers: Headers) -> float | None:
    """Seconds that the caller waits; None: for ever. Raises RpcError INTERNAL for a malformed timeout."""
    timeout = header(headers, "grpc-timeout")
    return None if timeout is None else timeout_seconds(timeout)


def percent_encode(message: str) -> str:
    """`message` as `grpc-message` carries it: UTF-8, with all but printable ASCII, and `%` itself, as %XX."""
    return quote(message, safe=_PRINTABLE, errors="replace")


@lru_cache(maxsize=64)
def _status(code: Code, message: str) -> bytes:
    status = (("grpc-status", str(int(code))),)
    return encode_block((*status, ("grpc-message", percent_encode(message))) if message else status)


def trailers(code: Code, message: str) -> bytes:
    """The header block that ends a call whose response headers were sent."""
    return _status(code, message[:MESSAGE_CHARACTERS])


GRPC: Final = Framing(envelope, trailers)
"""A server stream; its end is a header block."""


def trailers_only(code: Code, message: str) -> bytes:
    """The one header block of a call that ends without a message."""
    return START + _status(code, message[:MESSAGE_CHARACTERS])
