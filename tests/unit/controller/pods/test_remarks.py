"""The line that says what was done to a pod."""

from __future__ import annotations

from typing import Any

import pytest

from controller.pods import installation
from controller.pods.installation import evaluator_of, remark_annotations, remark_of, scope_of
from controller.pods.pod_injection import inject
from tests.worlds.pods import OPTIONS, Objects, inject_pod, pod

IN_PROCESS = {installation.FLAG_SET: None, installation.IN_PROCESS: "s0"}
SOURCES = {installation.FLAG_SET: None, installation.SOURCES: "s0"}


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ([{"selector": "shop/a"}, {"selector": "shop/b"}], ("namespaced", "scoped", "refreshable")),
        ([{"selector": "shop/a"}, {"selector": "pay/b"}], ("cross-namespace", "scoped", "refreshable")),
        ([{"selector": "shopping/a"}], ("cross-namespace", "scoped", "refreshable")),
        ([{"provider": "file", "uri": "/etc/a"}], ("namespaced", "scoped", "refreshable")),
        ([{"provider": "http", "uri": "https://a"}], ("external", "refreshable")),
        ([{"provider": "grpc", "uri": "a:1", "selector": "x"}], ("external", "scoped", "refreshable")),
    ],
)
def test_scope_is_said_of_the_sources(sources: list[dict[str, Any]], words: tuple[str, ...]) -> None:
    assert scope_of(sources, "shop") == words


@pytest.mark.parametrize(
    ("image", "text"),
    [
        ("registry.example:5000/flagstaff-evaluator:0.4.0", "evaluator 0.4.0"),
        ("registry.example:5000/flagstaff-evaluator", "evaluator latest"),
        ("evaluator@sha256:0123456789abcdef", "evaluator sha256:0123456789ab"),
        ("evaluator:0.4.0@sha256:0123456789abcdef", "evaluator 0.4.0"),
    ],
)
def test_evaluator_is_named_by_its_version(image: str, text: str) -> None:
    assert evaluator_of(image) == text


def test_remark_is_one_bounded_line() -> None:
    remark = remark_of(["namespaced"], "", "a\nb\x1b", "c" * 1_000)
    assert remark.startswith("namespaced; a b ; c")
    assert remark.isprintable()
    assert len(remark) == 500


@pytest.mark.parametrize(
    ("asks", "spec", "remark"),
    [
        ({}, {}, "namespaced, scoped, refreshable; flags of FlagSet checkout; evaluator 1"),
        (
            SOURCES,
            {"sources": [{"source": "https://a", "provider": "http"}]},
            "external, refreshable; flags of FeatureFlagSource s0; evaluator 1",
        ),
        (
            IN_PROCESS,
            {"selector": "checkout"},
            "namespaced, scoped, refreshable; flags of InProcessConfiguration s0; evaluates in process",
        ),
        (
            IN_PROCESS,
            {"offlineFlagSourcePath": "/flags.json"},
            "external; flags of InProcessConfiguration s0; evaluates in process",
        ),
        (
            IN_PROCESS,
            {"host": "flagd.example"},
            "external, refreshable; flags of InProcessConfiguration s0; evaluates in process",
        ),
    ],
)
def test_pod_has_the_remark(asks: dict[str, str | None], spec: dict[str, Any], remark: str) -> None:
    after = inject_pod(pod(asks), OPTIONS, Objects(s0=spec))
    assert after["metadata"]["annotations"][installation.REMARKS] == remark


def test_remark_and_warning_say_what_an_injected_pod_asked_for_in_vain() -> None:
    given = pod({"openfeature.dev/featureflagsources": "s0"})
    given["metadata"]["labels"] = {installation.LOG_LEVEL: "debug"}
    changes = inject(given, "shop", OPTIONS, Objects())
    assert changes is not None
    misses = (
        f"label {installation.LOG_LEVEL} is not read; write it as an annotation, at metadata.annotations",
        f"annotation openfeature.dev/featureflagsources is not read; did you mean {installation.SOURCES!r}?",
    )
    assert changes.warnings == misses
    remark = changes.after["metadata"]["annotations"][installation.REMARKS]
    assert remark.partition("; evaluator 1; ")[2] == "; ".join(misses)


def test_remark_that_a_user_wrote_is_replaced() -> None:
    after = inject_pod(pod({installation.REMARKS: "all is well"}))
    assert after["metadata"]["annotations"][installation.REMARKS].startswith("namespaced")


def test_a_remark_is_also_written_under_the_proposals_name_where_its_annotations_are_used() -> None:
    ours, theirs = "openfeature.dev/operator-remarks", "openfeature.io/operator-remarks"
    assert remark_annotations("x", ["openfeature.dev/standing-orders"]) == {ours: "x"}
    for name in ("openfeature.io/standingorder", "openfeature.agent/standing-orders-resource"):
        assert remark_annotations("x", [name]) == {ours: "x", theirs: "x"}
