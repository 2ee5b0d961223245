"""The largest hostile objects that the API server accepts, made from the definitions of our kinds: a new
field is covered without anybody's thinking of it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CRDS: Final = Path(__file__).parents[1] / "crds"
LARGEST: Final = 400_000
"""Bytes of a field. An object may have 1.5 MiB; what takes more than linear time shows before."""
DEEP: Final = 5_000
"""Levels of a value of any type; the API server refuses more than 10,000."""
UNITS: Final = (
    "a", "a\n", "*a/?\n", "-", "/", ".", "..", "../", ":", "@", " ", "\n", "\\", "*", "**/", "?", "!",
    "~", "^", "%", "%2e", "${", "$(", "{{", "{", "[", "[[", "(", "((a)*", "'", '"', "é", "0", "1.", "1h",
    "1e", "a-", "a.", "a/", "a=", "a,", "a@a:", "://", "https://a@", "-----BEGIN CERTIFICATE-----\n",
    "-----BEGIN ", "-----END ", "sha256:", "ssh-rsa ", ">=1.0.0 ", "1 || ", "!x && ", "[x, ", "x.map(y, ",
    "\t#", "AGE-SECRET-KEY-1",
)  # fmt: skip
"""Repeated, each is hard for some reader: of PEM, paths, patterns, expressions, versions, times."""


class Hostile(NamedTuple):
    """An object with one hostile field."""

    kind: str
    field: str
    """Such as `spec.git.url`; `[]`: an item of a list, `{}`: a value of a map."""
    value: str
    """What is hostile, for people."""
    body: dict[str, Any]


def hostile_objects(plural: str) -> Iterator[Hostile]:
    """Yield an object of a kind for each field of each of its versions, and each hostile value of that."""
    for file in (CRDS / f"{plural}.yaml",):
        crd = yaml.safe_load(file.read_text())["spec"]
        for version in crd["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            top = {
                "apiVersion": f"{crd['group']}/{version['name']}",
                "kind": crd["names"]["kind"],
                "metadata": {"name": "hostile", "namespace": "shop", "uid": "uid"},
            }
            top["metadata"] |= {"generation": 1, "resourceVersion": "1"}
            # No tenant writes a status.
            spec = schema["properties"]["spec"]
            for path, field in _fields(spec, ("spec",)):
                for label, value in _hostile(field):
                    body = _place({"spec": smallest(spec), **top}, schema, path, value)
                    yield Hostile(crd["names"]["kind"], _dotted_path(path), label, body)


def _fields(schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from _fields(each, (*path, name))
    for name, key in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(name), dict):
            yield from _fields(schema[name], (*path, key))


def _dotted_path(path: tuple[str, ...]) -> str:
    return ".".join(path).replace(".[]", "[]")


def _place(
    body: dict[str, Any], schema: Mapping[str, Any], path: tuple[str, ...], value: object
) -> dict[str, Any]:
    """`body` with `value` at `path`, and around it as little as the schema requires."""
    step, *rest = path
    if not rest:
        return {**body, step: value}
    below = schema["properties"][step]
    there = body.get(step)
    body[step] = _within(below, tuple(rest), value, there if isinstance(there, dict) else None)
    return body


def _within(schema: Mapping[str, Any], path: tuple[str, ...], value: object, there: Any = None) -> Any:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if step == "[]":
        return [_within(schema["items"], rest, value)]
    if step == "{}":
        return {"key": _within(schema["additionalProperties"], rest, value)}
    found = smallest(schema) if there is None else there
    found = found if isinstance(found, dict) else {}
    return {**found, step: _within(schema["properties"][step], rest, value)}


def smallest(schema: Mapping[str, Any]) -> Any:
    """Return the smallest value of a schema, as far as its rules need no more than its required fields."""
    if "default" in schema or "enum" in schema:
        return schema.get("default", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "object":
            required = schema.get("required", ())
            return {name: smallest(schema["properties"][name]) for name in required}
        case "array":
            return [smallest(schema["items"])] * schema.get("minItems", 0)
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case _:
            return _fitting_text(schema, max(1, schema.get("minLength", 1))) or "a"


def _fitting_text(schema: Mapping[str, Any], size: int) -> str:
    """A plain text of about that size that the schema takes; empty if none was found."""
    for unit in ("a", "1h", "1", "sha256:" + "0" * 64, "https://example.com/a", "A", "a=b"):
        text = (unit * (size // len(unit) + 1))[: max(size, len(unit))]
        for one in (text, unit):
            if _takes(schema, one):
                return one
    return ""


def _takes(schema: Mapping[str, Any], text: str) -> bool:
    if len(text) > schema.get("maxLength", LARGEST) or "enum" in schema:
        return False
    return "pattern" not in schema or re.search(schema["pattern"], text[:64]) is not None


def _hostile(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the hostile values of one field, each with its name."""
    match schema.get("type"):
        case "string" if "enum" not in schema:
            size = min(schema.get("maxLength", LARGEST), LARGEST)
            for unit in UNITS:
                # Two ends: what cannot be matched has a pattern try all that came before.
                for end in ("", "\x01!"):
                    if not _takes(schema, unit * 3 + end):
                        continue
                    text = (unit * (size // len(unit) + 1))[: max(0, size - len(end))] + end
                    yield f"{unit!r} repeated, {end!r}", text
        case "array":
            items = schema["items"]
            most = min(schema.get("maxItems", LARGEST), _number_of(_vary(smallest(items), 100_000)))
            yield f"{most} items", [_vary(smallest(items), number) for number in range(most)]
            if items.get("type") == "string" and "enum" not in items:
                text = "a" * min(items.get("maxLength", LARGEST), LARGEST // max(1, most))
                yield f"{most} long items", [f"{text[:-6]}{number:06}" for number in range(most)]
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            value = smallest(schema["additionalProperties"])
            most = min(schema.get("maxProperties", LARGEST), _number_of({"key00000": value}))
            yield f"{most} keys", {f"key{number}": value for number in range(most)}
            for unit in ("a", "/", "-", "."):
                yield f"a key of {unit!r}", {unit * LARGEST: value}
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        yield "deep lists", _nest(lambda value: [value])
        yield "deep objects", _nest(lambda value: {"a": value})
        many = range(_number_of({"flag00000": {}}))
        yield "many keys", {f"key{number}": number for number in many}
        yield "many lists", [[[]] for _ in many]
        yield "many flags", {"flags": {f"flag{number}": {} for number in many}}
        yield "a long text", "{" * LARGEST


def _number_of(item: Any) -> int:
    """How many of such items an object may hold."""
    return LARGEST // (len(json.dumps(item)) + 2)


def _vary(value: Any, number: int) -> Any:
    """A value that differs from its neighbours, where the items have to."""
    if isinstance(value, str):
        return f"{value}{number}"
    if isinstance(value, dict):
        return {name: _vary(each, number) if name == "name" else each for name, each in value.items()}
    return value


def _nest(wrap: Any) -> Any:
    value: Any = 1
    for _ in range(DEEP):
        value = wrap(value)
    return {"flags": value}
