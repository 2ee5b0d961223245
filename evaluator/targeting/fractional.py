"""`fractional`: the same user, the same bucket. Both generations of the algorithm.

v2 hashes text: a bucketing text as it is, else flag key and targeting key joined. v3 hashes CBOR: any bucketing value,
else the list of flag key and targeting key.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from evaluator.flags.model import Bucketing
from evaluator.targeting import cbor
from evaluator.targeting.bucketing import Buckets, bucket_of, read_buckets
from evaluator.targeting.site import Evaluate, Scope, Site, is_static

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Json

TARGETING_KEY = "targetingKey"


def fractional(values: Json, site: Site) -> Evaluate:
    """Compile `fractional`; where anything about it is wrong, flagd gives null."""
    if site.trace is None and not site.in_body and isinstance(values, list) and values:
        quick = _quick(values, site)
        if quick is not None:
            return quick
    return _general(site.child(values), site)


def _general(arguments_of: Evaluate, site: Site) -> Evaluate:
    key_of, meter = _keys(site), site.metered()

    def distribute(argument: Json) -> Json:
        arguments = arguments_of(argument)
        data = argument.data if isinstance(argument, Scope) else argument
        if not isinstance(arguments, list) or not arguments or not isinstance(data, dict):
            return site.report(None)
        hashed, entries = key_of(arguments, data)
        buckets = read_buckets(entries)
        if hashed is None or buckets is None:
            return site.report(None)
        meter.charge(len(hashed) >> 6)
        bucket = bucket_of(hashed, buckets.total)
        shown = hashed if isinstance(hashed, str) else hashed.hex()
        return site.report(buckets.result(bucket), bucket=bucket, of=buckets.total, hashed=shown)

    return distribute


def _keys(
    site: Site,
) -> Callable[[list[Json], dict[str, Json]], tuple[str | bytes | None, list[Json]]]:
    """Make what tells the key to hash (None: there is none) from the entries."""

    def text_of(arguments: list[Json], data: dict[str, Json]) -> tuple[str | None, list[Json]]:
        first = arguments[0]
        if isinstance(first, str):
            return first, arguments[1:]
        entries = arguments[1:] if first is None else arguments
        unit = _unit(data)
        return None if unit is None else _flag_key(site, data) + unit, entries

    def encoded_of(arguments: list[Json], data: dict[str, Json]) -> tuple[bytes | None, list[Json]]:
        first = arguments[0]
        if isinstance(first, list):
            unit = _unit(data)
            key = None if unit is None else cbor.encode([_flag_key(site, data), unit])
            return key, arguments
        return None if first is None else cbor.encode(first), arguments[1:]

    return encoded_of if site.bucketing is Bucketing.V3 else text_of


def _unit(data: dict[str, Json]) -> str | None:
    unit = data.get(TARGETING_KEY)
    return unit if isinstance(unit, str) and unit else None


def _flag_key(site: Site, data: dict[str, Json]) -> str:
    """The element of a loop is all the data there is, and hardly has `$flagd`."""
    if not site.in_body:
        return site.flag_key
    properties = data.get("$flagd")
    key = properties.get("flagKey") if isinstance(properties, dict) else None
    return key if isinstance(key, str) else ""


def _quick(values: list[Json], site: Site) -> Evaluate | None:
    """Literal entries are read once; what is left is to evaluate the key, hash and look up."""
    shorthand = isinstance(values[0], list)
    entries = values if shorthand else values[1:]
    buckets = read_buckets(entries) if all(is_static(entry) for entry in entries) else None
    if buckets is None:
        return None
    if shorthand:
        return _by_targeting_key(buckets, site)
    first = site.child(values[0], 0)
    general = _rest(entries, site)
    results, ends, total = buckets.results, buckets.ends, buckets.total
    meter = site.metered()
    as_hashed = cbor.encode_text if site.bucketing is Bucketing.V3 else str

    def distribute(context: Json) -> Json:
        key = first(context)
        if key.__class__ is not str:
            return general(key, context)
        meter.visit(key)
        return results[bisect_right(ends, bucket_of(as_hashed(key), total))]

    return distribute


def _rest(entries: list[Json], site: Site) -> Callable[[Json, Json], Json]:
    """Where the key turns out not to be text: as ever, with the key that was found."""

    def distribute(key: Json, context: Json) -> Json:
        return _general(lambda _: [key, *entries], site)(context)

    return distribute


def _by_targeting_key(buckets: Buckets, site: Site) -> Evaluate:
    total = buckets.total
    prefix = b"\x82" + cbor.encode_text(site.flag_key)
    is_text, meter = site.bucketing is not Bucketing.V3, site.metered()

    def distribute(context: Json) -> Json:
        unit = context.get(TARGETING_KEY)
        if unit.__class__ is not str or not unit:
            return None
        meter.visit(unit)
        hashed = site.flag_key + unit if is_text else prefix + cbor.encode_text(unit)
        return buckets.result(bucket_of(hashed, total))

    return distribute
