"""What an editor tells of definitions: what may stand at a place, and what a name there means. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.authoring.flag_life import life_of
from controller.authoring.flag_test_files import is_test_file
from controller.authoring.key_uses import key_uses
from controller.authoring.plan_words import audience_words
from controller.authoring.plans import audiences
from evaluator.flags.known_operators import OPERATORS, PREREQUISITE, REFERENCE, SCHEDULE, UNLISTED, shorten
from evaluator.flags.layer import EVALUATORS, FLAGS
from evaluator.flags.model import ABSENT, FlagSet, State
from evaluator.resolving.rule_words import clauses, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from controller.authoring.cursor import Spot
    from controller.authoring.flag_test_files import FlagTest
    from evaluator.flags.layer import Layer
    from evaluator.flags.model import Json, Path
    from evaluator.flags.problems import Document

_OPERATORS: Final = {*OPERATORS, *UNLISTED, REFERENCE, PREREQUISITE, SCHEDULE}
_IN_MANIFEST: Final = "flagSpec"
"""The field of manifests that has definitions."""
_DEEPEST: Final = 40
"""Levels of a path within which fields are known."""


class Written(NamedTuple):
    """The definitions around a file, as they were read last."""

    layers: Sequence[Layer] = ()
    flag_set: FlagSet = FlagSet({})
    others: Sequence[FlagSet] = ()
    """Flag sets whose flags these may need."""
    tests: Sequence[FlagTest] = ()

    def variants(self, key: str) -> dict[str, Json]:
        """The variants of a flag by name, also of one with a problem."""
        found: dict[str, Json] = {}
        for layer in self.layers:
            found |= _variants(layer.flags[key].value if key in layer.flags else None)
        # null removes one of a lower layer.
        found = {name: value for name, value in found.items() if value is not None}
        for flag_set in () if found else self.others:
            if key in flag_set.flags:
                return dict(flag_set.flags[key].variants)
        return found


class Suggestion(NamedTuple):
    """Something that may be written."""

    text: str
    kind: str
    """field, flag, evaluator, variant, operator or value."""
    detail: str = ""


class Name(NamedTuple):
    """The name of a flag, or of an entry of `$evaluators`."""

    text: str
    of_evaluator: bool = False


class _Around(NamedTuple):
    """Where a spot is among definitions."""

    path: Path
    """From the root of the definitions, which a manifest has within."""
    flag: str | None
    """The flag whose definition this is."""
    written: Json
    """What stands of that flag before the spot."""
    rule: Path | None
    """The path in a rule; None outside of rules."""


def suggestions(spot: Spot, file: str, schema: Mapping[str, Any], written: Written) -> Iterator[Suggestion]:
    """Yield what may stand at a spot of a file: names, then what the file's schema knows."""
    yield from (_of_tests(spot, written) if is_test_file(file) else _of_definitions(spot, written))
    inside = _around(spot).path if _IN_MANIFEST in spot.path else spot.path
    if spot.is_key:
        there = spot.at(spot.path)
        for name, part in _fields(schema, inside).items():
            if not isinstance(there, dict) or name not in there:
                kind = "operator" if name in _OPERATORS and _around(spot).rule is not None else "field"
                yield Suggestion(name, kind, str(part.get("description", "")))
    else:
        for part in _parts(schema, inside):
            values = [*part.get("enum", ()), *([part["const"]] if "const" in part else [])]
            yield from (Suggestion(value, "value") for value in values if isinstance(value, str))


def field_words(spot: Spot, schema: Mapping[str, Any]) -> str:
    """What the schema says of the field or operator at a spot."""
    if not spot.is_key:
        return ""
    inside = _around(spot).path if _IN_MANIFEST in spot.path else spot.path
    return str(_fields(schema, inside).get(spot.word, {}).get("description", ""))


def name_at(spot: Spot, file: str) -> Name | None:
    """The flag or evaluator that is named at a spot."""
    if not spot.word:
        return None
    around = _around(spot)
    path, rule = around.path, around.rule
    if is_test_file(file):
        named = not spot.is_key and len(path) == 3 and path[0] == "tests" and path[2] in {"flag", "evaluator"}
        return Name(spot.word, path[2] == "evaluator") if named else None
    if path in {(FLAGS,), (EVALUATORS,)} and spot.is_key:
        return Name(spot.word, path == (EVALUATORS,))
    if spot.is_key:
        return None
    if rule is not None and rule[-1:] == (REFERENCE,):
        return Name(spot.word, of_evaluator=True)
    in_list = len(path) == 3 and path[0] == FLAGS and isinstance(path[1], int) and path[2] == "key"
    needs = rule is not None and rule[-2:] == (PREREQUISITE, 0)
    return Name(spot.word) if in_list or needs else None


def places(name: Name, written: Written) -> Iterator[tuple[Document, Path]]:
    """Yield where a flag or an evaluator is defined, the highest layer first."""
    for layer in reversed(written.layers):
        piece = (layer.evaluators if name.of_evaluator else layer.flags).get(name.text)
        if piece is not None:
            yield piece.document, piece.path


def uses(name: Name, written: Written) -> Iterator[tuple[Document, Path]]:
    """Yield where rules use the key of a flag, and where tests name a flag or an evaluator."""
    if not name.of_evaluator:
        for use in key_uses(written.layers, name.text):
            yield use.piece.document, use.path
    rows = dict.fromkeys(
        (test.document.file, test.path)
        for test in written.tests
        if (test.subject, test.of_evaluator) == (name.text, name.of_evaluator)
    )
    documents = {test.document.file: test.document for test in written.tests}
    for file, path in rows:
        yield documents[file], (*path, "evaluator" if name.of_evaluator else "flag")


def flag_words(key: str, written: Written, now: int) -> Iterator[str]:
    """Yield lines about a flag: who gets what, and what its metadata says of its life. now: Unix seconds."""
    flag_set = next((one for one in (written.flag_set, *written.others) if key in one.flags), None)
    if flag_set is None:
        there = any(key in layer.flags for layer in written.layers)
        yield f"{key}: it has a problem" if there else f"{key}: no such flag here"
        return
    flag = flag_set.flags[key]
    state = ", disabled" if flag.state is State.DISABLED else ""
    yield f"{key}: {', '.join(f'{name} = {shorten(value)}' for name, value in flag.variants.items())}{state}"
    yield from audience_words(*audiences(flag_set, key, now))
    metadata = flag.metadata_under(flag_set.metadata)
    life = life_of(metadata)
    if life.owner:
        yield f"owner: {life.owner}"
    if life.expires is not None:
        yield f"expires: {metadata['expires']}"


def evaluator_words(name: str, written: Written) -> str:
    """What an entry of `$evaluators` says, in words; empty for one that is not there."""
    body = written.flag_set.evaluators.get(name, ABSENT)
    return "" if body is ABSENT else f"{name}: {sentence(clauses(body))}"


def _of_tests(spot: Spot, written: Written) -> Iterator[Suggestion]:
    match spot.path:
        case ("tests", int(), "flag") if not spot.is_key:
            yield from _flags(written)
        case ("tests", int(), "evaluator") if not spot.is_key:
            yield from _evaluators(written)
        case ("tests", int(), "expect", "variant") | ("tests", int(), "distribution"):
            test = spot.at(spot.path[:2])
            subject = test.get("flag") if isinstance(test, dict) else None
            if spot.is_key == (spot.path[-1] == "distribution") and isinstance(subject, str):
                yield from _variant_suggestions(written.variants(subject))


def _of_definitions(spot: Spot, written: Written) -> Iterator[Suggestion]:
    around = _around(spot)
    if spot.is_key:
        return
    own = {} if around.flag is None else {**written.variants(around.flag), **_variants(around.written)}
    rule = around.rule
    if rule is None:
        if around.path[-1:] == ("defaultVariant",):
            yield from _variant_suggestions(own)
    elif rule[-1:] == (REFERENCE,):
        yield from _evaluators(written)
    elif rule[-2:] == (PREREQUISITE, 0):
        yield from (one for one in _flags(written) if one.text != around.flag)
    elif rule[-2:] == (PREREQUISITE, 1):
        needed = spot.at((*spot.path[:-1], 0))
        yield from _variant_suggestions(written.variants(needed) if isinstance(needed, str) else {})
    elif _is_result(rule):
        yield from _variant_suggestions(own)


def _around(spot: Spot) -> _Around:
    at = spot.path.index(_IN_MANIFEST) + 1 if _IN_MANIFEST in spot.path else 0
    path = spot.path[at:]
    match path:
        case ("flags", str() | int() as step, *rest):
            definition = spot.at(spot.path[: at + 2])
            key = definition.get("key") if isinstance(step, int) and isinstance(definition, dict) else step
            rule = tuple(rest[1:]) if rest[:1] == ["targeting"] else None
            return _Around(path, key if isinstance(key, str) else None, definition, rule)
        case ("$evaluators", _, *rest):
            return _Around(path, None, None, tuple(rest))
    return _Around(path, None, None, None)


def _is_result(rule: Path) -> bool:
    """Whether a place in a rule gives the rule's result, the name of a variant."""
    while len(rule) > 1 and rule[0] in {"if", "?:"} and isinstance(rule[1], int) and rule[1] > 0:
        rule = rule[2:]
    return not rule or (rule[0] == "fractional" and len(rule) == 3 and rule[2] == 0)


def _variants(definition: Json) -> dict[str, Json]:
    variants = definition.get("variants") if isinstance(definition, dict) else None
    return dict(variants) if isinstance(variants, dict) else {}


def _variant_suggestions(variants: Mapping[str, Json]) -> Iterator[Suggestion]:
    yield from (Suggestion(name, "variant", shorten(value)) for name, value in variants.items())


def _flags(written: Written) -> Iterator[Suggestion]:
    sets = [flag_set.flags.keys() for flag_set in written.others]
    for key in _names([*(layer.flags.keys() for layer in written.layers), *sets]):
        yield Suggestion(key, "flag", ", ".join(written.variants(key)))


def _evaluators(written: Written) -> Iterator[Suggestion]:
    names = _names(layer.evaluators.keys() for layer in written.layers)
    yield from (Suggestion(name, "evaluator") for name in names)


def _names(groups: Iterable[Iterable[str]]) -> dict[str, None]:
    return dict.fromkeys(name for names in groups for name in names)


def _fields(schema: Mapping[str, Any], path: Path) -> dict[str, Mapping[str, Any]]:
    """The fields that an object at `path` may have, by name."""
    found: dict[str, Mapping[str, Any]] = {}
    for part in _parts(schema, path):
        for name, below in part.get("properties", {}).items():
            found.setdefault(name, below)
    return found


def _parts(schema: Mapping[str, Any], path: Path) -> list[Mapping[str, Any]]:
    """All that a schema says of the value at `path`."""
    parts = _spread(schema, [schema])
    for step in path[:_DEEPEST]:
        parts = _spread(schema, [below for part in parts for below in _below(part, step)])
    return parts if len(path) <= _DEEPEST else []


def _below(part: Mapping[str, Any], step: str | int) -> Iterator[Any]:
    if isinstance(step, int):
        items = part.get("items")
        if isinstance(items, list):
            yield items[step] if step < len(items) else part.get("additionalItems")
        else:
            yield items
    elif step in part.get("properties", {}):
        yield part["properties"][step]
    else:
        yield from part.get("patternProperties", {}).values()
        yield part.get("additionalProperties")


def _spread(schema: Mapping[str, Any], parts: Iterable[Any]) -> list[Mapping[str, Any]]:
    """The parts with all alternatives that they name, each once."""
    found: dict[int, Mapping[str, Any]] = {}
    pending = [*parts]
    while pending:
        part = pending.pop(0)
        if not isinstance(part, dict) or id(part) in found:
            continue
        found[id(part)] = part
        for word in ("allOf", "anyOf", "oneOf"):
            pending += part.get(word, ())
        target: Any = schema
        for step in str(part["$ref"]).split("/")[1:] if "$ref" in part else ():
            target = target[step]
        if "$ref" in part:
            pending.append(target)
    return [*found.values()]
