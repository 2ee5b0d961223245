"""Judges a value by a structural schema of a CustomResourceDefinition, as the API server does where unknown
fields are errors: jsonschema-rs finds what is wrong, and here stands how to say it. Pure.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, Final

from jsonschema_rs import Draft7Validator, RegexOptions
from jsonschema_rs import ValidationErrorKind as Fault

from controller.api.fields import OPEN
from evaluator.flags.problems import Severity
from evaluator.flags.suggestions import Suggestions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jsonschema_rs import ValidationError, Validator

    from evaluator.flags.model import Path

WORDS: Final = "x-words"
"""What a pattern asks for, in words; in schemas that are no CustomResourceDefinition's."""
_LIST: Final = "x-kubernetes-list-"
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
    "minimum": ("at least", ""),
    "maximum": ("at most", ""),
}
_BITS: Final = {"int32": 31, "int64": 63}
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


def json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON Schema of a structural schema, in which unknown fields are refused. Each part is where it
    was.
    """
    kind = schema.get("type")
    translated = {
        key: value
        for key, value in schema.items()
        if key != "nullable" and (key.startswith(_LIST) or not key.startswith("x-"))
    }
    if "properties" in schema:
        translated["properties"] = {name: json_schema(field) for name, field in schema["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            translated[inner] = json_schema(schema[inner])
    if kind == "object" and not schema.get(OPEN):
        translated.setdefault("additionalProperties", False)
    if schema.get("nullable") and kind is not None:
        translated["type"] = [kind, "null"]
    if bits := _BITS.get(str(schema.get("format"))):
        translated = {"minimum": -(2**bits), "maximum": 2**bits - 1, **translated}
    return translated


def compile_schema(schema: Mapping[str, Any]) -> Validator:
    """Return what judges values by a structural schema."""
    return Draft7Validator(
        json_schema(schema),
        # Times are judged by the parsers that read them.
        validate_formats=False,
        # The engine without backtracking, as the API server's is.
        pattern_options=RegexOptions(),
        keywords={f"{_LIST}type": _ListType},
    )


class _ListType:
    """Refuses an item that is in a list twice, by its keys where the list is a map."""

    def __init__(self, schema: Mapping[str, Any], kind: str, path: object) -> None:
        self._keys = schema.get(f"{_LIST}map-keys", ()) if kind == "map" else ()
        self._distinct = kind in {"set", "map"}

    def validate(self, items: Any) -> None:
        """Raise the first repetition."""
        for error in self.iter_errors(items):
            raise error

    def iter_errors(self, items: Any) -> Iterator[ValueError]:
        """Yield repetitions by the item's number."""
        seen = set()
        for index, item in enumerate(items if self._distinct and isinstance(items, list) else ()):
            named = self._keys and isinstance(item, dict)
            key = json.dumps([item.get(name) for name in self._keys] if named else item, sort_keys=True)
            if key in seen:
                yield ValueError(str(index))
            seen.add(key)


def schema_problems(schema: Mapping[str, Any], compiled: Validator, value: Any) -> Iterator[SchemaProblem]:
    """Yield all that is wrong with `value`, an object `with_defaults`. CEL rules are judged elsewhere."""
    suggestions = Suggestions()
    errors = [(tuple(error.instance_path), error) for error in compiled.iter_errors(value)]
    mistyped = {path for path, error in errors if isinstance(error.kind, Fault.Type)}
    for path, error in errors:
        if path not in mistyped or isinstance(error.kind, Fault.Type):
            part, found = _below(schema, error.schema_path[:-1]), _below(value, path)
            yield from _in_words(part, found, path, error, suggestions)


def _below(whole: Any, path: Iterable[str | int]) -> Any:
    return reduce(getitem, path, whole)


def _in_words(
    schema: Mapping[str, Any], value: Any, path: Path, error: ValidationError, suggestions: Suggestions
) -> Iterator[SchemaProblem]:
    known = schema.get("properties", {})
    match error.kind:
        case Fault.Required(name):
            meant = {_near(each, known) for each in value if each not in known and suggestions.take()}
            if name not in meant:
                yield SchemaProblem((*path, name), f"is required: {_required_names(known.get(name, {}))}")
        case Fault.AdditionalProperties(names):
            for name in names:
                guess = _guess(name, known) if suggestions.take() else ""
                message = f'unknown field "{name}"{guess}'
                yield SchemaProblem((*path, name), message, "unknown-field", at_key=True)
        case Fault.Custom(_, index):
            yield SchemaProblem((*path, int(index)), "is in the list twice")
        case Fault.Enum(options):
            listed = ", ".join(str(choice) or '""' for choice in options)
            near = nearest(str(value), map(str, options)) if suggestions.take() else ""
            yield SchemaProblem(path, f"must be one of {listed}{near}")
        case Fault.Pattern(pattern):
            plain = _expected_type(schema) if _DURATION in pattern else f"a string that matches {pattern}"
            yield SchemaProblem(path, f"must be {schema.get(WORDS, plain)}", vague=True)
        case _:
            yield SchemaProblem(path, _message(schema, value, error))


def _message(schema: Mapping[str, Any], value: Any, error: ValidationError) -> str:
    expected = _expected_type(schema)
    match error.kind:
        case Fault.Type() if value is None:
            return f"is empty; write {expected}"
        case Fault.Type():
            is_text = expected == _NAMES["string"] and not isinstance(value, dict | list)
            return f"must be {expected}, not {_shorten(value)}{'; put it in quotes' if is_text else ''}"
        case Fault.MinLength(limit) | Fault.MaxLength(limit) | Fault.MinItems(limit) | Fault.MaxItems(limit):
            bound, unit = _SIZES[error.kind.name]
            return (
                f"must have {bound} {limit} {unit}{'' if limit == 1 else 's'}"
                if value
                else "must not be empty"
            )
        case Fault.Minimum(limit) | Fault.Maximum(limit):
            return f"must be {_SIZES[error.kind.name][0]} {limit}"
        case Fault.OneOfNotValid() | Fault.OneOfMultipleValid():
            fields = ", ".join(name for choice in schema["oneOf"] for name in choice.get("required", ()))
            return f"set exactly one of {fields}"
        case _:
            return error.message


def with_defaults(schema: Mapping[str, Any], value: Any) -> Any:
    """Return a copy of a value with the defaults that the API server fills in, and without the nulls
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
        name: with_defaults(_field(schema, name), inner)
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
    return value is None and not _takes_null(_field(schema, name))


def _field(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
    return inner if isinstance(inner, dict) else {}


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
