"""LaunchDarkly's own cases, and what its files have that has no exact form here."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from evaluator.resolving.resolution import FlagType
from tests.unit.controller.importers.suites import CODE, Tally, compiled, imported, read_yaml, suite, value_of

if TYPE_CHECKING:
    from collections.abc import Iterator

LISTS = frozenset({"attrname", "attr1"})
"""Attributes that are lists in some contexts of the suite."""


TYPES = {
    "bool": FlagType.BOOLEAN,
    "int": FlagType.INTEGER,
    "double": FlagType.FLOAT,
    "string": FlagType.STRING,
    "any": None,
}


def combinations(parameters: list[Any]) -> Iterator[dict[str, Any]]:
    if parameters and isinstance(parameters[0], list):
        for parts in itertools.product(*parameters):
            yield {name: value for part in parts for name, value in part.items()}
    else:
        yield from parameters or [{}]


def filled(value: Any, constants: dict[str, Any]) -> Any:
    """The template with each `<NAME>` replaced: a whole text by the value, else by its text."""
    if isinstance(value, dict):
        return {filled(key, constants): filled(item, constants) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, constants) for item in value]
    if isinstance(value, str):
        for name, constant in constants.items():
            if value == f"<{name}>":
                return filled(constant, constants)
            value = value.replace(f"<{name}>", str(constant))
    return value


def context_of(context: dict[str, Any]) -> dict[str, Any]:
    """The context as an application gives it to OpenFeature: a user is all of it, other kinds are within."""
    if context.get("kind") == "multi":
        parts = {kind: part for kind, part in context.items() if kind != "kind"}
    else:
        custom = context.get("custom") or {}
        own = {name: value for name, value in context.items() if name not in ("kind", "custom")}
        parts = {context.get("kind", "user"): {**own, **custom}}
    user = dict(parts.pop("user", {}))
    return {**({"targetingKey": user.pop("key")} if "key" in user else {}), **user, **parts}


def tally_of(**options: Any) -> Tally:
    tally = Tally()
    for file in sorted(suite("launchdarkly").glob("*.yml")):
        for cases in read_yaml(file):
            for parameters in combinations(cases.get("parameters") or []):
                whole = filled(cases, {**(cases.get("constants") or {}), **parameters})
                run_cases(file.stem, whole, tally, **options)
    return tally


def test_the_cases_of_sdk_test_harness() -> None:
    tally_of().assert_published("LaunchDarkly, sdk-test-harness")


def test_short_versions_alone_differ_once_they_are_allowed() -> None:
    tally_of(allowed=frozenset({"short-versions"})).assert_published(
        "the same with `--allow short-versions`",
        "operators-semver-equal: 2.0-rc semVerEqual",
        "operators-semver-equal: 2-rc semVerEqual",
    )


def run_cases(name: str, cases: dict[str, Any], tally: Tally, **options: Any) -> None:
    what = imported("launchdarkly", cases["sdkData"], lists=LISTS, **options)
    flags = compiled(what)
    for case in cases["evaluations"]:
        key, default = case["flagKey"], case.get("default")

        def ask(key: str = key, case: dict[str, Any] = case, default: Any = default) -> Any:
            value = value_of(
                flags, key, context_of(case["context"]), wanted=TYPES[case.get("valueType", "any")]
            )
            return default if value == CODE else value

        tally.count(
            f"{name}: {case.get('name')} {json.dumps(case['context'])}",
            what,
            key,
            case["expect"]["value"],
            ask,
        )
