"""Writes what a reader understood as layered definitions: what all environments share is the base. Pure."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import orjson
import yaml

from controller.importers.conditions import both, buckets, has_bucket, in_arm, object_rule, rule_of, simplify
from controller.importers.model import (
    ANY,
    NEXT,
    ONLY,
    Always,
    Arm,
    Imported,
    ImportedFlag,
    Next,
    Outcome,
    Targeting,
    UserHash,
    UserSplit,
)
from evaluator.flags.model import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from evaluator.flags.model import Json

FLAGS_OF_A_FILE: Final = 500
"""Most flags that are written into one file."""
_MOST_YAML: Final = 1024 * 1024
"""Largest file that is written as YAML, in bytes of its JSON."""
_SHORT: Final = 80
"""Longest collection that is written in one line, in characters."""
_NAMES: Final = 2
"""The depth of the names of flags and evaluators: document, `flags`, name."""
_REST: Final = "rest"
"""The name of the arm of users who are left to later rules."""
_CODE: Final = "code"
"""The name of the arm of users who get the value in the caller's code."""


def definitions(imported: Imported, environment: str) -> dict[str, Json]:
    """The whole definitions of one environment, as one document."""
    document: dict[str, Json] = {}
    if evaluators := {
        segment.name: object_rule(simplify(segment.conditions[environment]))
        for segment in imported.segments
        if environment in segment.conditions
    }:
        document["$evaluators"] = evaluators
    document["flags"] = {
        flag.key: flag_definition(flag, environment)
        for flag in imported.flags
        if environment in flag.targeting
    }
    return document


def flag_definition(flag: ImportedFlag, environment: str) -> dict[str, Json]:
    """The definition of one flag in one environment."""
    targeting = flag.targeting[environment]
    default = _default_variant(targeting)
    definition: dict[str, Json] = {
        "state": State.ENABLED.value if targeting.enabled else State.DISABLED.value,
        "variants": dict(flag.variants),
        "defaultVariant": default,
    }
    branches = list(_branches(targeting, default))
    if len(branches) == 1 and branches[0][0] is True and isinstance(branches[0][1], dict):
        definition["targeting"] = branches[0][1]
    elif branches:
        parts: list[Json] = []
        for condition, result in branches:
            parts += [result] if condition is True else [condition, result]
        definition["targeting"] = {"if": parts}
    if flag.metadata:
        definition["metadata"] = dict(flag.metadata)
    return definition


def files(imported: Imported) -> Iterator[tuple[str, str]]:
    """The paths and texts of the files: `base` with what all environments share, and `overlays/NAME` with the
    rest; without environments all is in the one folder. Large ones are JSON, which is read faster.
    """
    environments = sorted({name for flag in imported.flags for name in flag.targeting})
    starts = range(0, max(1, len(imported.flags)), FLAGS_OF_A_FILE)
    for number, start in enumerate(starts, 1):
        flags = imported.flags[start : start + FLAGS_OF_A_FILE]
        segments = imported.segments if number == 1 else ()
        name = "flags" if len(starts) == 1 else f"flags-{number:02}"
        part = replace(imported, flags=flags, segments=segments)
        for folder, document in documents_by_folder(part, environments).items():
            yield _file(f"{folder}/{name}".lstrip("/"), {"flags": {}} | document)


def _file(path: str, document: Mapping[str, Json]) -> tuple[str, str]:
    """The file as YAML; as JSON with a line for each flag where it is large."""
    if len(orjson.dumps(document)) <= _MOST_YAML:
        return f"{path}.yaml", to_yaml(document)
    sections = []
    for section, entries in document.items():
        lines = (f"{_json(key)}: {_json(entry)}" for key, entry in entries.items())
        sections.append(f"{_json(section)}: {{\n" + ",\n".join(lines) + "\n}")
    return f"{path}.json", "{\n" + ",\n".join(sections) + "\n}\n"


def _json(value: Json) -> str:
    return orjson.dumps(value).decode()


def documents_by_folder(imported: Imported, environments: Sequence[str]) -> dict[str, dict[str, Json]]:
    """Documents by folder; without environments there is the one folder `""`."""
    wholes = {name: definitions(imported, name) for name in environments}
    if environments in ([ONLY], []):
        return {"": wholes.get(ONLY, {})}
    base: dict[str, Json] = {}
    overlays: dict[str, dict[str, Json]] = {name: {} for name in environments}
    for part in ("$evaluators", "flags"):
        entries = {key: None for whole in wholes.values() for key in whole.get(part, {})}
        for key in entries:
            of_environments = {name: whole.get(part, {}).get(key) for name, whole in wholes.items()}
            shared, rests = _divide(of_environments, nested=part == "flags")
            if shared is not None:
                base.setdefault(part, {})[key] = shared
            for name, rest in rests.items():
                overlays[name].setdefault(part, {})[key] = rest
    return {"base": base, **{f"overlays/{name}": overlay for name, overlay in overlays.items()}}


def _divide(entries: Mapping[str, Json], *, nested: bool) -> tuple[Json, dict[str, Json]]:
    """Divide an entry into what all environments share, and the rest of each. null: nothing."""
    values = list(entries.values())
    if all(value == values[0] for value in values):
        return values[0], {}
    if not nested or None in values:
        return None, {name: value for name, value in entries.items() if value is not None}
    shared = {
        field: value
        for field, value in values[0].items()
        if all(field in other and other[field] == value for other in values)
    }
    rests = {
        name: {field: value for field, value in entry.items() if field not in shared}
        for name, entry in entries.items()
    }
    return shared, {name: rest for name, rest in rests.items() if rest}


def to_yaml(document: Json) -> str:
    """YAML that means the same in versions 1.1 and 1.2. What is short and within a flag is in one line."""
    node = _Dumper(io.StringIO(), sort_keys=False).represent_data(document)
    _set_style(node, 0)
    text: str = yaml.serialize(node, Dumper=_Dumper, allow_unicode=True, width=2 * _SHORT)
    return text


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        """Write a rule that is used twice in both places."""
        return True


def _set_style(node: yaml.Node, depth: int) -> int:
    """Write the collection in one line if it is short; return its length, of several lines a large one."""
    if not isinstance(node, yaml.CollectionNode):
        return len(node.value) + 2
    parts = (part for item in node.value for part in (item if isinstance(item, tuple) else (item,)))
    length = sum(_set_style(part, depth + 1) for part in parts)
    node.flow_style = length <= _SHORT and depth > _NAMES
    return length if node.flow_style else 2 * _SHORT


def _default_variant(targeting: Targeting) -> str | None:
    """The variant of users without an outcome; null where some get the value in the caller's code."""
    outcomes = [*(rule.then for rule in targeting.rules), targeting.otherwise]
    if any(arm is None for outcome in outcomes for arm in _arms(outcome)):
        return None
    if not isinstance(targeting.otherwise, UserSplit):
        return targeting.otherwise if isinstance(targeting.otherwise, str) else targeting.off
    missing = targeting.otherwise.missing
    if missing is ANY and targeting.off is None:
        missing = targeting.otherwise.arms[0][0]
    return missing if isinstance(missing, str) else targeting.off


def _arms(outcome: Outcome) -> Sequence[Arm]:
    if not isinstance(outcome, UserSplit):
        return [outcome]
    return [outcome.missing, *(arm for arm, weight in outcome.arms if weight > 0)]


def _branches(targeting: Targeting, default: str | None) -> Iterator[tuple[Json, Json]]:
    """The conditions, or true, and the results of an `if`."""
    for rule in targeting.rules:
        when = simplify(rule.when)
        if when == Always(value=False):
            continue
        condition = rule_of(when)
        yield from _outcome_branches(condition, rule.then, default)
        if condition is True and not _leaves_users(rule.then):
            return
    otherwise = targeting.otherwise
    if isinstance(otherwise, UserSplit):
        arms = tuple((targeting.off if arm is NEXT else arm, weight) for arm, weight in otherwise.arms)
        missing = targeting.off if otherwise.missing is NEXT else otherwise.missing
        yield from _outcome_branches(True, UserSplit(arms, otherwise.bucket, missing), default)
    elif otherwise != default:
        yield True, otherwise


def _leaves_users(outcome: Outcome) -> bool:
    return NEXT in _arms(outcome)


def _outcome_branches(condition: Json, outcome: Outcome, default: str | None) -> Iterator[tuple[Json, Json]]:
    if outcome is NEXT:
        return
    if not isinstance(outcome, UserSplit):
        yield condition, outcome
        return
    bucket, missing = outcome.bucket, outcome.missing
    arms = [(arm, weight) for arm, weight in outcome.arms if weight > 0]
    divisor = math.gcd(*(weight for _, weight in arms))
    weights: list[Json] = [[_name(arm), weight // divisor] for arm, weight in arms]
    if len(arms) == 1 and missing in (arms[0][0], ANY):
        yield from _outcome_branches(condition, arms[0][0], default)
    elif all(isinstance(arm, str) for arm, _ in arms):
        whole: Json = {"fractional": buckets(bucket, weights)} if len(arms) > 1 else arms[0][0]
        if missing is NEXT:
            yield _join(condition, has_bucket(bucket)), whole
        elif missing in (default, ANY) and bucket == UserHash() and len(arms) > 1:
            yield condition, whole
        else:
            yield condition, {"if": [has_bucket(bucket), whole, default if missing is ANY else missing]}
    else:
        if not isinstance(missing, Next):
            yield _join(condition, {"!": has_bucket(bucket)}), missing
        for arm, _ in arms:
            if arm is not NEXT:
                yield _join(condition, in_arm(bucket, weights, _name(arm))), arm


def _join(condition: Json, other: Json) -> Json:
    return other if condition is True else both(condition, other)


def _name(arm: Arm) -> str:
    return arm if isinstance(arm, str) else _REST if arm is NEXT else _CODE
