"""Documents that are wrong in many places, each kind of wrong apart; benchmarks/diagnostics.py times them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SOUND: Final = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}
_IS_KNOWN: Final = {"==": [{"var": "email"}, "x"]}


def right_flag(_: int) -> dict[str, Any]:
    """Return a flag with which nothing is wrong."""
    return {**_SOUND, "targeting": {"if": [_IS_KNOWN, "on", "off"]}}


def _with_rule(rule: Any) -> dict[str, Any]:
    return {**_SOUND, "targeting": rule}


WRONG_FLAGS: Final[Mapping[str, Callable[[int], Any]]] = {
    "misspelt fields": lambda _: {"stat": 1, "variant": 2, "defaultVarian": 3, "targetin": 4},
    "distinct unknown fields": lambda at: {**_SOUND, f"defaultV{at:06}": 1, f"vari{at:04}": 2},
    "misspelt states": lambda at: {**_SOUND, "state": f"ENAB{at % 10}ED"},
    "misspelt operators": lambda at: _with_rule({"if": [{f"start_wit{at % 10}": ["x", "x"]}, "on", "off"]}),
    "misspelt variables": lambda _: _with_rule({"if": [{"var": "$flagd.timestam"}, "on", "off"]}),
    "unknown default variants": lambda at: {**_SOUND, "defaultVariant": f"o{at}"},
    "unknown outcomes": lambda at: _with_rule({"if": [_IS_KNOWN, f"onn{at}", "offf"]}),
    "unknown references": lambda at: _with_rule({"if": [{"$ref": f"share{at}"}, "on", "off"]}),
    "outcomes of a shared rule": lambda _: _with_rule({"$ref": "many"}),
    "wrong comparisons": lambda _: _with_rule({"sem_ver": [{"var": "version"}, "greaterthan", "x"]}),
    "wrong buckets": lambda _: _with_rule({"fractional": [["a", "b"], ["c", -1], "d"]}),
    "wrong types": lambda _: {"state": 1, "variants": [], "defaultVariant": [], "targeting": 1},
    "wrong metadata": lambda _: {**_SOUND, "metadata": {"a": [], "b": None, "c": {}}},
    "mixed variants": lambda _: {**_SOUND, "variants": {"on": True, "off": "x", "none": None}},
    "names in another case": lambda _: {"State": "ENABLED", "VARIANTS": {"on": 1}, "DefaultVariant": "on"},
    "no objects": lambda at: at,
}
"""The kinds of wrong that a flag can have."""


def document(flag: Callable[[int], Any], count: int) -> bytes:
    """Return a document of so many flags."""
    many = {"if": [part for at in range(90) for part in (_IS_KNOWN, f"other{at}")]}
    flags = {f"flag-{at}": flag(at) for at in range(count)}
    return json.dumps({"flags": flags, "$evaluators": {"shared": _IS_KNOWN, "many": many}}).encode()


def _repeated_flags(count: int) -> bytes:
    flags = ", ".join([f'"flag": {json.dumps(_SOUND)}'] * count)
    return f'{{"flags": {{{flags}}}}}'.encode()


def _repeated_fields(count: int) -> bytes:
    fields = ", ".join('"state": "ENABLED"' for _ in range(4 * count))
    return f'{{"flags": {{"flag": {{{fields}}}}}}}'.encode()


def _unknown_keys(count: int) -> bytes:
    return json.dumps({"flags": {}, **{f"metadat{at}": at for at in range(4 * count)}}).encode()


def _unknown_fields_of_one_flag(count: int) -> bytes:
    fields = {f"defaultV{at:06}": 1 for at in range(4 * count)}
    return json.dumps({"flags": {"flag": {**_SOUND, **fields}}}).encode()


def _one_field_in_every_case(count: int) -> bytes:
    name = "defaultvariant"
    names = (
        "".join(letter.upper() if at >> place & 1 else letter for place, letter in enumerate(name))
        for at in range(4 * count)
    )
    return json.dumps({"flags": {"flag": {**_SOUND, **dict.fromkeys(names, "on")}}}).encode()


def _listed_twice(count: int) -> bytes:
    return json.dumps({"flags": [{"key": "flag", **_SOUND} for _ in range(count)]}).encode()


def _cycle(count: int) -> bytes:
    rules = {f"rule{at}": {"!": {"$ref": f"rule{(at + 1) % count}"}} for at in range(count)}
    return json.dumps({"flags": {}, "$evaluators": rules}).encode()


WRONG_WHOLES: Final[Mapping[str, Callable[[int], bytes]]] = {
    "repeated flags": _repeated_flags,
    "repeated fields": _repeated_fields,
    "unknown keys": _unknown_keys,
    "unknown fields of one flag": _unknown_fields_of_one_flag,
    "one field in every case": _one_field_in_every_case,
    "flags listed twice": _listed_twice,
    "a cycle of shared rules": _cycle,
}
"""The kinds of wrong that only a whole document can have."""
