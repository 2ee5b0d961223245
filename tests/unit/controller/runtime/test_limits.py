"""Limits of namespaces: those of the options, and over them what a ConfigMap says."""

from __future__ import annotations

import pytest

from controller.runtime.tenancy.limits import Limits, NamespaceLimits


@pytest.fixture
def limits() -> Limits:
    return Limits(NamespaceLimits(sources=5, flags=100))


def test_a_namespace_has_the_limits_of_the_options_but_for_its_overrides(limits: Limits) -> None:
    assert limits.replace({"shop": "sources: 20\nartifactBytes: 1000\n"}) == ()
    assert limits.of("shop") == NamespaceLimits(sources=20, artifact_bytes=1000, flags=100)
    assert limits.of("other") == NamespaceLimits(sources=5, flags=100)


def test_0_lifts_a_limit(limits: Limits) -> None:
    limits.replace({"shop": "sources: 0"})
    assert limits.of("shop").sources == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sources: many", "shop.sources: must be a whole number"),
        ("sources: true", "shop.sources: must be a whole number"),
        ("sources: -1", "shop.sources: must be at least 0"),
        ("source: 1", "shop.source: Extra inputs are not permitted"),
        ("1: 1", "shop.1: Keys should be strings"),
        ("20", "shop: must have a limit on each line, such as 'sources: 10'"),
        ("", "shop: must have a limit on each line, such as 'sources: 10'"),
        ("sources: [", "shop: is not YAML: while parsing a flow node"),
        ("[\n" * 1500, "shop: is not YAML: "),
    ],
)
def test_invalid_limits_are_reported_and_change_nothing(limits: Limits, text: str, problem: str) -> None:
    limits.replace({"shop": "sources: 20"})
    [reported] = limits.replace({"shop": text, "other": "sources: 7"})
    assert reported.startswith(problem)
    assert (limits.of("shop").sources, limits.of("other").sources) == (20, 7)
    # Of a namespace that never had any the options hold.
    limits.replace({})
    limits.replace({"shop": text})
    assert limits.of("shop").sources == 5


def test_each_namespace_whose_limits_change_is_passed_on(limits: Limits) -> None:
    changed: list[str] = []
    limits.changed = changed.append
    limits.replace({"a": "sources: 1", "b": "sources: 1"})
    assert changed == ["a", "b"]
    limits.replace({"b": "sources: 1", "c": "sources: 1"})
    assert changed == ["a", "b", "a", "c"]
