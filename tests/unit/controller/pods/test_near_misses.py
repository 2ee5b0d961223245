"""Annotations that nearly ask for an evaluator, as `inject` and `lint -f` report them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from controller.cli import main
from controller.pods.near_misses import near_misses

if TYPE_CHECKING:
    from pathlib import Path

ENABLED = "openfeature.dev/enabled"
FLAG_SET = "flagstaff.dev/flagset"


def workload(
    kind: str = "Deployment",
    own: dict[str, Any] | None = None,
    pod: dict[str, Any] | None = None,
    labels: dict[str, Any] | None = None,
    job: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A workload with these annotations: its own, of its pods' template, of a CronJob's template of Jobs; and
    these labels of its pods.
    """
    template = {"metadata": {"annotations": pod or {}, "labels": labels or {}}, "spec": {"containers": []}}
    spec: dict[str, Any] = {"template": template}
    if kind == "CronJob":
        spec = {"jobTemplate": {"metadata": {"annotations": job or {}}, "spec": spec}}
    metadata = {"name": "checkout", "namespace": "shop", "annotations": own or {}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("manifest", "messages"),
    [
        (
            workload(pod={ENABLED: "True"}),
            [f'annotation {ENABLED} is \'True\', and only "true" asks for an evaluator; write "true"'],
        ),
        (
            workload(pod={ENABLED: "yes"}),
            [f'annotation {ENABLED} is \'yes\', and only "true" asks for an evaluator; write "true"'],
        ),
        (
            workload(pod={ENABLED: "true "}),
            [f'annotation {ENABLED} is \'true \', and only "true" asks for an evaluator; write "true"'],
        ),
        (
            workload(own={ENABLED: "true"}),
            [
                f"annotation {ENABLED} of the Deployment is not read; move it to "
                "spec.template.metadata.annotations"
            ],
        ),
        (
            workload("CronJob", job={FLAG_SET: "checkout"}),
            [
                f"annotation {FLAG_SET} of the CronJob is not read; move it to "
                "spec.jobTemplate.spec.template.metadata.annotations"
            ],
        ),
        (
            workload(labels={ENABLED: "true"}),
            [
                f"label {ENABLED} is not read; write it as an annotation, at "
                "spec.template.metadata.annotations"
            ],
        ),
        (
            workload(pod={"openfeature.dev/enable": "true"}),
            [f"annotation openfeature.dev/enable is not read; did you mean {ENABLED!r}?"],
        ),
        (
            workload(pod={"flagstaff.dev/flag-set": "checkout"}),
            [f"annotation flagstaff.dev/flag-set is not read; did you mean {FLAG_SET!r}?"],
        ),
    ],
)
def test_what_nearly_asks_for_an_evaluator_is_noted(manifest: dict[str, Any], messages: list[str]) -> None:
    assert [miss.message for miss in near_misses(manifest)] == messages


def test_few_of_many_unknown_annotations_are_compared() -> None:
    many = {f"openfeature.dev/featureflagsourc{number}": "x" for number in range(1_000)}
    assert len([*near_misses(workload(pod=many))]) == 8


@pytest.mark.parametrize(
    "manifest",
    [
        workload(pod={ENABLED: "true", FLAG_SET: "checkout"}),
        workload(own={ENABLED: "true"}, pod={ENABLED: "true"}),
        workload(pod={ENABLED: "false"}),
        workload(pod={ENABLED: "off"}),
        workload(own={"openfeature.dev/flags": "{}"}),
        workload(own={"openfeature.dev/standing-orders": "kill"}),
        workload(pod={"openfeature.dev/somebody-elses": "x", "example.com/enabled": "True"}),
        {"kind": "Service", "metadata": {"annotations": {ENABLED: "True"}}},
        {"kind": "Deployment", "metadata": None, "spec": "no object"},
        None,
    ],
)
def test_what_asks_rightly_or_not_at_all_is_not_noted(manifest: object) -> None:
    assert [*near_misses(manifest)] == []


def test_inject_and_lint_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "checkout.yaml"
    file.write_text(yaml.safe_dump(workload(pod={ENABLED: "True"})))
    assert main(["inject", "-f", str(file)]) == 0
    assert f"Deployment checkout: annotation {ENABLED} is 'True'" in capsys.readouterr().err
    assert main(["lint", "-f", str(file)]) == 0
    printed = capsys.readouterr().out
    assert f"note: Deployment checkout: spec.template.metadata.annotations: annotation {ENABLED}" in printed
