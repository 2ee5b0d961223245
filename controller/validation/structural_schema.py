"""Judges a value by a structural schema of a CustomResourceDefinition, as the API server does where unknown
fields are errors. Pure.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api.parsing import InvalidTextError, compile_pattern
from evaluator.flags.problems import Severity
from evaluator.flags.suggestions import Suggestions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from evaluator.flags.model import Path

OPEN: Final = "x-kubernetes-preserve-unknown-fields"
WORDS: Final = "x-words"
"""What a pattern asks for, in words; in schemas that are no CustomResourceDefinition's."""
_NAMES: Final = {
    "object": "fields",
    "array": "a list",
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
_WITH_PARTS: Final = ("items", "properties", "additionalProperties")
_SIZES: Final = {
    "minLength": ("at least", "character"),
    "maxLength": ("at most", "character"),
    "minItems": ("at least", "item"),
    "maxItems": ("at most", "item"),
}
_DURATION: Final = "(ms|s|m"
"""Part of the patterns of durations."""
_WORDS: Final = frozenset({"yes", "no", "on", "off", "true", "false", "y", "n"})
"""Texts that are meant as a boolean."""


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """What is wrong at one place of a value."""

    path: Path
    message: str
    code: str = "invalid-field"
    at_key: bool = False
    """Whether the key is at fault, not its value."""
    vague: bool = False
    """Whether the message only says that a pattern is not met."""
    severity: Severity = Severity.ERROR
    """Only an error refuses the object."""


def schema_problems(schema: Mapping[str, Any], value: Any, path: Path = ()) -> Iterator[SchemaProblem]:
    """Yield all that is wrong with `value`, an object as YAML has it. CEL rules are judged elsewhere."""
    yield from _problems(schema, value, path, Suggestions())


def _problems(
    schema: Mapping[str, Any], value: Any, path: Path, suggestions: Suggestions
) -> Iterator[SchemaProblem]:
    if value is None:
        if not _takes_null(schema):
            yield SchemaProblem(path, f"is empty; write {_expected_type(schema)}")
        return
    kind = schema.get("type")
    if kind is not None and not _is(value, kind):
        quotes = (
            "; put it in quotes"
            if _expected_type(schema) == _NAMES["string"] and not isinstance(value, dict | list)
            else ""
        )
        yield SchemaProblem(path, f"must be {_expected_type(schema)}, not {_shorten(value)}{quotes}")
        return
    if "enum" in schema and value not in schema["enum"]:
        listed = ", ".join(str(choice) or '""' for choice in schema["enum"])
        near = nearest(str(value), map(str, schema["enum"])) if suggestions.take() else ""
        yield SchemaProblem(path, f"must be one of {listed}{near}")
    if isinstance(value, str):
        yield from _of_text(schema, value, path)
    elif isinstance(value, list):
        yield from _of_list(schema, value, path, suggestions)
    elif isinstance(value, dict):
        yield from _of_fields(schema, value, path, suggestions)
    else:
        yield from _of_number(schema, value, path)
    yield from _of_choice(schema, value, path)


def with_defaults(schema: Mapping[str, Any], value: Any) -> Any:
    """Return a copy of a valid value with the defaults that the API server fills in, and without the nulls
    that it drops.
    """
    if schema.keys().isdisjoint(_WITH_PARTS):
        # The flags of a set may be a megabyte, and have neither.
        return value
    if isinstance(value, list):
        return [with_defaults(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict):
        return value
    filled = {
        name: with_defaults(_below(schema, name), inner)
        for name, inner in value.items()
        if not _is_dropped(schema, name, inner)
    }
    for name, field in schema.get("properties", {}).items():
        if name not in filled and "default" in field:
            filled[name] = with_defaults(field, field["default"])
    return filled


def _takes_null(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("nullable")) or "type" not in schema


def _is_dropped(schema: Mapping[str, Any], name: str, value: Any) -> bool:
    """Whether the API server takes a field for one that is not given."""
    return value is None and not _takes_null(_below(schema, name))


def _below(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
    return inner if isinstance(inner, dict) else {}


def _is(value: Any, kind: str) -> bool:
    if kind == "object":
        return isinstance(value, dict)
    if kind == "array":
        return isinstance(value, list)
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    numbers = isinstance(value, int | float) and not isinstance(value, bool)
    return numbers and (kind == "number" or float(value).is_integer())


def _expected_type(schema: Mapping[str, Any]) -> str:
    """What is asked for, in words."""
    if _DURATION in str(schema.get("pattern")):
        return "a duration such as 30s or 1m"
    return _NAMES.get(str(schema.get("type")), "a value")


def _shorten(value: Any) -> str:
    if isinstance(value, dict):
        return "fields"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return f'the string "{value}"' if value.lower() in _WORDS else "a string"
    return f"{'' if isinstance(value, bool) else 'the number '}{json.dumps(value, default=str)}"


def _of_text(schema: Mapping[str, Any], text: str, path: Path) -> Iterator[SchemaProblem]:
    yield from _of_size(schema, "Length", len(text), path)
    pattern = schema.get("pattern")
    if pattern is not None and not _matches(pattern, text):
        plain = _expected_type(schema) if _DURATION in pattern else f"a string that matches {pattern}"
        yield SchemaProblem(path, f"must be {schema.get(WORDS, plain)}", vague=True)


def _matches(pattern: str, text: str) -> bool:
    try:
        return compile_pattern(pattern).search(text) is not None
    except InvalidTextError:
        return True


def _of_size(schema: Mapping[str, Any], what: str, size: int, path: Path) -> Iterator[SchemaProblem]:
    for name, wrong in ((f"min{what}", int.__lt__), (f"max{what}", int.__gt__)):
        if name in schema and wrong(size, schema[name]):
            bound, unit = _SIZES[name]
            unit += "" if schema[name] == 1 else "s"
            message = "must not be empty" if size == 0 else f"must have {bound} {schema[name]} {unit}"
            yield SchemaProblem(path, message)


def _of_number(schema: Mapping[str, Any], number: float, path: Path) -> Iterator[SchemaProblem]:
    if "minimum" in schema and number < schema["minimum"]:
        yield SchemaProblem(path, f"must be at least {schema['minimum']}")
    if "maximum" in schema and number > schema["maximum"]:
        yield SchemaProblem(path, f"must be at most {schema['maximum']}")
    bits = {"int32": 31, "int64": 63}.get(str(schema.get("format")))
    if bits is not None and not -(2**bits) <= number < 2**bits:
        yield SchemaProblem(path, f"must be a number of {bits + 1} bits")


def _of_list(
    schema: Mapping[str, Any], items: list[Any], path: Path, suggestions: Suggestions
) -> Iterator[SchemaProblem]:
    yield from _of_size(schema, "Items", len(items), path)
    for index, item in enumerate(items):
        yield from _problems(schema.get("items", {}), item, (*path, index), suggestions)
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys", ())
    if kind in {"set", "map"}:
        first: dict[str, int] = {}
        for index, item in enumerate(items):
            key = item if kind == "set" else [item.get(name) for name in keys if isinstance(item, dict)]
            if first.setdefault(json.dumps(key, sort_keys=True, default=str), index) != index:
                yield SchemaProblem((*path, index), "is in the list twice")


def _of_fields(
    schema: Mapping[str, Any], value: dict[Any, Any], path: Path, suggestions: Suggestions
) -> Iterator[SchemaProblem]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    present = {name: inner for name, inner in value.items() if not _is_dropped(schema, name, inner)}
    missing = [name for name in schema.get("required", ()) if name not in present]
    unknown = (str(name) for name in value if missing and name not in known)
    meant = {_near(name, known) for name in unknown if suggestions.take()}
    for name in missing:
        if name not in meant:
            yield SchemaProblem((*path, name), f"is required: {_required_names(known.get(name, {}))}")
    for name, inner in present.items():
        if name in known:
            yield from _problems(known[name], inner, (*path, name), suggestions)
        elif isinstance(more, dict):
            yield from _problems(more, inner, (*path, name), suggestions)
        elif not schema.get(OPEN) and not more:
            guess = _guess(str(name), known) if suggestions.take() else ""
            yield SchemaProblem((*path, name), f'unknown field "{name}"{guess}', "unknown-field", at_key=True)


def _required_names(schema: Mapping[str, Any]) -> str:
    """What is missing, by its documentation."""
    first = str(schema.get("description", "")).partition(". ")[0].partition("; ")[0].rstrip(".")
    return first or _expected_type(schema)


def _guess(name: str, known: Mapping[str, Any]) -> str:
    """The field that is meant, here or below; empty where none is near."""
    if near := nearest(name, known):
        return near
    places = [".".join(place) for place in _places(name, known, ())]
    return f"; it belongs into {places[0]}" if len(places) == 1 else ""


def _places(name: str, known: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for field, schema in known.items():
        if above and field == name:
            yield above
        yield from _places(name, schema.get("properties", {}), (*above, field))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean "x"?`, or an empty text where nothing is near."""
    near = _near(name, known)
    return f'; did you mean "{near}"?' if near else ""


def _near(name: str, known: Iterable[str]) -> str:
    plain = {_plain(name): name for name in known if name}
    near = difflib.get_close_matches(_plain(name)[:100], plain, n=1, cutoff=0.65)
    return plain[near[0]] if near else ""


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _of_choice(schema: Mapping[str, Any], value: Any, path: Path) -> Iterator[SchemaProblem]:
    choices = schema.get("oneOf")
    if choices is None:
        return
    met = [choice for choice in choices if not any(schema_problems({OPEN: True, **choice}, value))]
    if len(met) != 1:
        names = ", ".join(name for choice in choices for name in choice.get("required", ()))
        yield SchemaProblem(path, f"set exactly one of {names}")
