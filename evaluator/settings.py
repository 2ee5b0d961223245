"""How to serve, with flagd's names (https://flagd.dev/reference/flagd-cli/flagd_start/). The only reader of the environment."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from evaluator.flags.model import EMPTY

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


class InvalidSettingError(ValueError):
    """A setting cannot be used; the text names it and says what it must be."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One evaluator's settings; defaults are flagd's."""

    host: str = "0.0.0.0"  # noqa: S104 - a sidecar is probed and scraped from outside its pod
    """Address that all ports listen on. FLAGSTAFF_HOST"""
    port: int = 8013
    """gRPC; 0 takes a free port, here and below. FLAGD_PORT"""
    management_port: int = 8014
    """Health, readiness, metrics. FLAGD_MANAGEMENT_PORT"""
    ofrep_port: int = 8016
    """OFREP. FLAGD_OFREP_PORT"""
    stream_deadline: float = 0.0
    """Seconds after which event streams end with DEADLINE_EXCEEDED; 0: never. FLAGD_STREAM_DEADLINE, such as `10m`"""
    max_request_body: int = 1_000_000
    """Bytes; 0: no limit. FLAGD_MAX_REQUEST_BODY"""
    max_request_header: int = 1_000_000
    """Bytes of a header block, at least 1. FLAGD_MAX_REQUEST_HEADER"""
    context_values: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Laid over every evaluation context. FLAGD_CONTEXT_VALUE, such as `region=eu,tier=gold`"""
    context_from_header: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Context key by header name, in lower case. FLAGD_CONTEXT_FROM_HEADER, such as `X-Region=region`"""
    shutdown_seconds: float = 5.0
    """Time that requests in flight have to end at shutdown; flagd's, which has no option for it."""


def from_env(environ: Mapping[str, str]) -> Settings:
    """Settings of `environ`, defaults for what it does not set; raises InvalidSettingError."""
    defaults = Settings()
    deadline = environ.get("FLAGD_STREAM_DEADLINE")
    headers = _pairs(environ, "FLAGD_CONTEXT_FROM_HEADER")
    return Settings(
        host=environ.get("FLAGSTAFF_HOST", defaults.host),
        port=_whole(environ, "FLAGD_PORT", defaults.port, (0, 65535)),
        management_port=_whole(
            environ, "FLAGD_MANAGEMENT_PORT", defaults.management_port, (0, 65535)
        ),
        ofrep_port=_whole(environ, "FLAGD_OFREP_PORT", defaults.ofrep_port, (0, 65535)),
        stream_deadline=defaults.stream_deadline if deadline is None else duration(deadline),
        max_request_body=_whole(
            environ, "FLAGD_MAX_REQUEST_BODY", defaults.max_request_body, (0, 2**31)
        ),
        max_request_header=_whole(
            environ, "FLAGD_MAX_REQUEST_HEADER", defaults.max_request_header, (1, 2**31)
        ),
        context_values=_pairs(environ, "FLAGD_CONTEXT_VALUE"),
        context_from_header={name.lower(): key for name, key in headers.items()},
    )


def duration(text: str) -> float:
    """Seconds of a duration as Go writes it, `0` or such as `1m30s`; raises InvalidSettingError."""
    if text == "0":
        return 0.0
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InvalidSettingError(
            f"FLAGD_STREAM_DEADLINE is {text!r}: must be a duration such as 30s or 10m"
        )
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _whole(environ: Mapping[str, str], name: str, default: int, bounds: tuple[int, int]) -> int:
    text = environ.get(name)
    if text is None:
        return default
    lowest, highest = bounds
    if not (text.isascii() and text.isdigit() and lowest <= int(text) <= highest):
        raise InvalidSettingError(
            f"{name} is {text!r}: must be a whole number from {lowest} to {highest}"
        )
    return int(text)


def _pairs(environ: Mapping[str, str], name: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in filter(None, environ.get(name, "").split(",")):
        key, equals, value = item.partition("=")
        if not (key and equals):
            raise InvalidSettingError(f"{name} has {item!r}: must be name=value, parted by commas")
        pairs[key] = value
    return pairs
