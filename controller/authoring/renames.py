"""The rule of a flag under another key, with users in the buckets that they were in. Pure.

`fractional` without a value to hash hashes the flag's key and the targeting key, joined
(docs/reference/operators.md), so that another key moves all users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evaluator.flags.model import Json, Path

_FRACTIONAL: Final = "fractional"
_OWN_KEY: Final = "$flagd.flagKey"


def keyed_places(rule: Json, key: str) -> Iterator[tuple[Path, bool]]:
    """Yield where a rule depends on the key of its flag, apart from comparisons with the text `key`: lists of
    `fractional` that need a first item (true), and objects that a text may replace (false). Inner places come
    before outer ones.
    """
    if isinstance(rule, list):
        for number, part in enumerate(rule):
            if not (_reads_key(part) and _has(rule, key)):
                yield from (((number, *path), hashes) for path, hashes in keyed_places(part, key))
    elif _reads_key(rule):
        yield (), False
    elif isinstance(rule, dict):
        for name, part in rule.items():
            yield from (((name, *path), hashes) for path, hashes in keyed_places(part, key))
        if _hashes_key(rule):
            yield (_FRACTIONAL,), True


def with_key(rule: Json, old: str, key: str) -> Json:
    """The rule of the flag `key`, answering as in a flag `old`; comparisons with `key` stay."""
    if isinstance(rule, list):
        return [part if _reads_key(part) and _has(rule, key) else with_key(part, old, key) for part in rule]
    if _reads_key(rule):
        return old
    if not isinstance(rule, dict):
        return rule
    whole = {name: with_key(part, old, key) for name, part in rule.items()}
    return {_FRACTIONAL: [seed_of(old), *whole[_FRACTIONAL]]} if _hashes_key(rule) else whole


def seed_of(key: str) -> Json:
    """What `fractional` hashes by itself in the flag of that key."""
    return {"cat": [key, {"var": "targetingKey"}]}


def _reads_key(rule: Json) -> bool:
    return isinstance(rule, dict) and len(rule) == 1 and rule.get("var") in (_OWN_KEY, [_OWN_KEY])


def _has(parts: Sequence[Json], key: str) -> bool:
    return any(part == key or (isinstance(part, list) and key in part) for part in parts)


def _hashes_key(rule: dict[str, Json]) -> bool:
    buckets = rule.get(_FRACTIONAL)
    return len(rule) == 1 and isinstance(buckets, list) and bool(buckets) and isinstance(buckets[0], list)
