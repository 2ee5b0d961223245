"""How a server of flags is asked, and how its answer is read, whoever asks: an evaluator, or the controller
for objects that merge its flags. Pure.

Each has a transport of its own. The controller judges the addresses that it connects to, and shares its
connections and their limits among namespaces; an evaluator has no aiohttp and follows few sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evaluator.flags.document import Syntax, format_of

if TYPE_CHECKING:
    from collections.abc import Mapping

REFUSING: Final = frozenset({401, 403})
"""Statuses of a server that wants another login."""
ABSENT: Final = frozenset({404, 410})
"""Statuses of a server that has no such document."""
UNENDED: Final = (
    "answers with YAML without its length, which may be cut off; have it send Content-Length or chunks, "
    "or serve JSON"
)
"""Why YAML is refused that may be cut off: at the end of a line it is valid, with fewer flags."""


def request_headers(etag: str) -> dict[str, str]:
    """The headers of a request for a document; `etag`: of the one that is known, empty for none."""
    return {"Accept": "application/json, application/yaml", **({"If-None-Match": etag} if etag else {})}


def syntax_of(path: str, headers: Mapping[str, str]) -> Syntax:
    """As the extension of the path says, else the content type; JSON where neither does."""
    yaml = "yaml" in headers.get("Content-Type", "").lower()
    return format_of(path) or (Syntax.YAML if yaml else Syntax.JSON)


def is_too_large(details: str) -> bool:
    """Whether a message of gRPC is about our own limit: servers send the same status when overloaded."""
    return "larger than max" in details


def channel_options(most_bytes: int) -> list[tuple[str, Any]]:
    """Options of a channel to one server, of which messages have at most so many bytes. Who asks decides when
    to try again: shared subchannels would keep earlier failures.
    """
    return [
        ("grpc.max_receive_message_length", most_bytes),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
