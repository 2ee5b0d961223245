"""What OpenFeature Operator makes of the same objects, case by case: `golden/operator/*.yaml`.

A case has `sources` or `in_process` (specs, in the order in which the pod names them), `options`,
`annotations` and `pod` (its spec), and under `expected` what becomes of the pod: those parts alone that the
case is about. What we do otherwise, on purpose, says so in its name.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from controller.pods import installation
from controller.pods.installation import FlagSetFound, Options, PodRefused
from controller.pods.pod_injection import inject
from tests.worlds.pods import Granted, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

FOLDER = Path(__file__).parent / "golden" / "operator"
OPTIONS = Options(image="ghcr.io/open-feature/flagd:v0.15.4", proxy_address="proxy:8015", compat=True)


class Known(Granted):
    """All may refer to all, and flag sets are there."""

    def flag_set(self, namespace: str, name: str, kinds: Sequence[str] = ()) -> FlagSetFound:
        del namespace, kinds
        return FlagSetFound(name)

    def spec(self, kind: str, namespace: str, name: str) -> Mapping[str, Any]:
        del kind, namespace
        if name not in self._sources:
            raise PodRefused(f"no FeatureFlagSource {name}")
        return self._sources[name]


def cases() -> Iterator[Any]:
    for file in sorted(FOLDER.glob("*.yaml")):
        for it, case in yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader).items():
            yield pytest.param(case, id=f"{file.stem}: {it}")


def pod_of(case: Mapping[str, Any]) -> dict[str, Any]:
    """The pod of a case."""
    annotation = installation.IN_PROCESS if "in_process" in case else installation.SOURCES
    specs = case.get("in_process") or case.get("sources") or ()
    named = {annotation: ",".join(f"s{number}" for number, _ in enumerate(specs)) or None}
    return pod({installation.FLAG_SET: None, **named, **case.get("annotations", {})}, **case.get("pod", {}))


def lines(container: Mapping[str, Any]) -> list[Any]:
    """Variables as `NAME=value`, in order; one whose value comes from elsewhere as it is."""
    return [
        each if "valueFrom" in each else f"{each['name']}={each['value']}"
        for each in container.get("env") or ()
    ]


def evaluator(after: Mapping[str, Any]) -> dict[str, Any]:
    spec = after["spec"]
    found = [each for part in ("initContainers", "containers") for each in spec.get(part) or ()]
    return next((each for each in found if each["name"] == "flagd"), {})


def arguments_without_sources(after: Mapping[str, Any]) -> list[str]:
    words = list(evaluator(after)["args"])
    at = words.index("--sources")
    return words[:at] + words[at + 2 :]


def sources_as_written(after: Mapping[str, Any]) -> str:
    words = evaluator(after)["args"]
    found: str = words[words.index("--sources") + 1]
    return found


def added_annotations(after: Mapping[str, Any]) -> dict[str, str]:
    """Annotations that nobody asked by, and that say no digest and no remark."""
    given: dict[str, str] = after["metadata"]["annotations"]
    asked = {installation.ENABLED, installation.SOURCES, installation.IN_PROCESS}
    left = asked | {installation.INJECTED, installation.REMARKS}
    return {name: text for name, text in given.items() if name not in left}


PARTS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "args": arguments_without_sources,
    "sources": sources_as_written,
    "evaluator": lambda after: lines(evaluator(after)),
    "ports": lambda after: {each["name"]: each["containerPort"] for each in evaluator(after)["ports"]},
    "probes": lambda after: {
        name: f"{probe['httpGet']['path']} {probe['httpGet']['port']}"
        for name, probe in evaluator(after).items()
        if name.endswith("Probe")
    },
    "resources": lambda after: evaluator(after)["resources"],
    "mounts": lambda after: {
        each["name"]: each["mountPath"] for each in evaluator(after).get("volumeMounts") or ()
    },
    "volumes": lambda after: after["spec"].get("volumes", []),
    "containers": lambda after: {each["name"]: lines(each) for each in after["spec"]["containers"]},
    "init": lambda after: [each["name"] for each in after["spec"].get("initContainers") or ()],
    "annotations": added_annotations,
}


def became(case: Mapping[str, Any]) -> dict[str, Any]:
    """The parts that the case expects, as they are."""
    specs = case.get("in_process") or case.get("sources") or ()
    known = Known(**{f"s{number}": spec for number, spec in enumerate(specs)})
    options = replace(OPTIONS, **case.get("options", {}))
    try:
        changes = inject(pod_of(case), "shop", options, known)
    except PodRefused as refusal:
        return {"refused": str(refusal)}
    if changes is None:
        return {"untouched": True}
    beside = {"warnings": list(changes.warnings), "patch": changes.patch}
    asked = case["expected"]
    # What is written is JSON; a case cannot distinguish a tuple from a list.
    after = json.loads(json.dumps(changes.after))
    return {
        part: beside[part] if part in beside else PARTS[part](after)
        for part in asked
        if part in beside or part in PARTS
    }


@pytest.mark.parametrize("case", [*cases()])
def test_the_same_comes_of_the_same(case: Mapping[str, Any]) -> None:
    assert became(case) == case["expected"]
