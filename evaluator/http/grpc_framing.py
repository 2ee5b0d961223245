"""Encodes and decodes gRPC over HTTP/2: message framing, compression, timeouts, statuses.

It is specified in https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, and compression.md there.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from evaluator.http.hpack import encode_block
from evaluator.http.messages import Code, Framing, Headers, RpcError, Zipped, header

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX: Final = 5
"""Bytes in front of a message: a flag for compression, then the length in 4 bytes."""
ENCODINGS: Final = ("grpc-accept-encoding", "identity,gzip")
SHARED_BYTES: Final = 65_536
"""A message with more bytes is not copied behind its prefix; the copies of others are kept for the next
streams that are sent the same message.
"""
_KEPT: Final = 4
"""Framed messages that are kept."""
MESSAGE_CHARACTERS: Final = 1_000
"""Most characters of `grpc-message`: clients refuse header blocks over 8 KiB, and one may take 12 bytes."""

_PRINTABLE: Final = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_GZIP_WINDOW: Final = 31
_GZIP_LEVEL: Final = 1
"""The quickest: the usual level takes ten times as long for a large set and saves a seventh of the bytes."""

START: Final = encode_block([(":status", "200"), ("content-type", "application/grpc"), ENCODINGS])
"""The header block that begins a response."""
ZIPPED_START: Final = START + encode_block([("grpc-encoding", "gzip")])
"""The header block that begins a stream on which a message may be Zipped."""
TRAILERS: Final = encode_block([("grpc-status", "0")])
"""The header block that ends a response with OK."""


def frame(message: bytes) -> bytes:
    """Return an uncompressed message behind its prefix."""
    return prefix(message) + message


def prefix(message: bytes) -> bytes:
    """Return the prefix of an uncompressed message."""
    return b"\0" + len(message).to_bytes(4, "big")


def envelope(message: bytes) -> Sequence[bytes]:
    """Return a message behind its prefix; a large one as a piece of its own. All streams that are sent the
    same message are given the same bytes.
    """
    return (prefix(message), message) if len(message) > SHARED_BYTES else _frames(message)


@lru_cache(maxsize=_KEPT)
def _frames(message: bytes) -> Sequence[bytes]:
    return (frame(message),)


def zipped(message: bytes) -> Zipped:
    """Compress a message; takes long for a large one."""
    deflater = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    content = deflater.compress(message) + deflater.flush()
    head = b"\1" + len(content).to_bytes(4, "big")
    return Zipped((head, content) if len(content) > SHARED_BYTES else (head + content,))


def takes_gzip(headers: Headers) -> bool:
    """Return whether a caller takes messages in gzip's format."""
    accepted = header(headers, "grpc-accept-encoding") or ""
    return "gzip" in accepted.replace(" ", "").split(",")


def only_message(body: bytes, encoding: str | None, limit: int, broken: Code = Code.INTERNAL) -> bytes:
    """Return the only message in `body`, decompressed to at most `limit` bytes (0: no limit).

    Raises RpcError: with the code `broken` for malformed framing or compression, UNIMPLEMENTED for an unknown
    encoding, RESOURCE_EXHAUSTED for a message that is too large.
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
    """Decompress a message. Raises RpcError as `only_message` does."""
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
    """Convert a `grpc-timeout` to seconds. Raises RpcError INTERNAL for a malformed one."""
    digits, unit = value[:-1], _UNITS.get(value[-1:])
    if unit is None or not (0 < len(digits) <= 8 and digits.isascii() and digits.isdigit()):
        raise RpcError(Code.INTERNAL, "malformed grpc-timeout")
    return int(digits) * unit


def grpc_timeout(headers: Headers) -> float | None:
    """Return the caller's timeout in seconds, or None. Raises RpcError INTERNAL for a malformed one."""
    timeout = header(headers, "grpc-timeout")
    return None if timeout is None else timeout_seconds(timeout)


def percent_encode(message: str) -> str:
    """Encode a text for `grpc-message`: UTF-8, with `%` and all bytes but printable ASCII as %XX."""
    return quote(message, safe=_PRINTABLE, errors="replace")


@lru_cache(maxsize=64)
def _status(code: Code, message: str) -> bytes:
    status = (("grpc-status", str(int(code))),)
    return encode_block((*status, ("grpc-message", percent_encode(message))) if message else status)


def trailers(code: Code, message: str) -> bytes:
    """Return the header block that ends a response with a status."""
    return _status(code, message[:MESSAGE_CHARACTERS])


GRPC: Final = Framing(envelope, trailers)
"""The framing of messages; the final status is a header block and not a part of the body."""


def trailers_only(code: Code, message: str) -> bytes:
    """Return the header block that is the whole response to a call without a message."""
    return START + _status(code, message[:MESSAGE_CHARACTERS])
