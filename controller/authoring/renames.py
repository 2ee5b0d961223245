"""The rule of a flag under another key, with users in the buckets that they were in. Pure.

`fractional` without a value to hash hashes the flag's key and the targeting key, joined
(docs/reference/operators.md), so that another key moves all users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evaluator.flags.model import Json, Path

_FRACTIONAL: Final = "fractional"
_OWN_KEY: Final = "$flagd.flagKey"


def keyed_places(rule: Json) -> Iterator[tuple[Path, bool]]:
    """Yield where a rule hashes or reads its flag's key: lists of `fractional` that need a first item (true),
    and objects that a text may replace (false). Inner places come before outer ones.
    """
    if isinstance(rule, list):
        for number, part in enumerate(rule):
            yield from (((number, *path), hashes) for path, hashes in keyed_places(part))
    elif isinstance(rule, dict):
        if len(rule) == 1 and rule.get("var") in (_OWN_KEY, [_OWN_KEY]):
            yield (), False
            return
        for name, part in rule.items():
            yield from (((name, *path), hashes) for path, hashes in keyed_places(part))
        buckets = rule.get(_FRACTIONAL)
        if len(rule) == 1 and isinstance(buckets, list) and buckets and isinstance(buckets[0], list):
            yield (_FRACTIONAL,), True


def seed_of(key: str) -> Json:
    """What `fractional` hashes by itself in the flag of that key."""
    return {"cat": [key, {"var": "targetingKey"}]}


def with_key(rule: Json, key: str) -> Json:
    """The rule as it is in the flag `key`, for a flag of another key."""
    if isinstance(rule, list):
        return [with_key(part, key) for part in rule]
    if not isinstance(rule, dict):
        return rule
    if len(rule) == 1 and rule.get("var") in (_OWN_KEY, [_OWN_KEY]):
        return key
    whole = {name: with_key(part, key) for name, part in rule.items()}
    buckets = whole.get(_FRACTIONAL)
    if len(whole) == 1 and isinstance(buckets, list) and buckets and isinstance(buckets[0], list):
        return {_FRACTIONAL: [seed_of(key), *buckets]}
    return whole
