"""Annotations that nearly ask for an evaluator, as `inject` and `lint -f` report them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from controller.cli import main
from controller.pods.near_misses import near_misses
from tests.worlds.objects import workload

if TYPE_CHECKING:
    from pathlib import Path

ENABLED = "openfeature.dev/enabled"
FLAG_SET = "flagstaff.dev/flagset"


def cron_job(annotations: dict[str, str]) -> dict[str, Any]:
    """A CronJob with these annotations at its Jobs."""
    made = workload("CronJob")
    made["spec"]["jobTemplate"]["metadata"] = {"annotations": annotations}
    return made


@pytest.mark.parametrize(
    ("manifest", "messages"),
    [
        (
            workload(below={ENABLED: "True"}),
            [f'annotation {ENABLED} is \'True\', and only "true" asks for an evaluator; write "true"'],
        ),
        (
            workload(below={ENABLED: "yes"}),
            [f'annotation {ENABLED} is \'yes\', and only "true" asks for an evaluator; write "true"'],
        ),
        (
            workload(below={ENABLED: "true "}),
            [f'annotation {ENABLED} is \'true \', and only "true" asks for an evaluator; write "true"'],
        ),
        (
            workload(annotations={ENABLED: "true"}),
            [
                f"annotation {ENABLED} of the Deployment is not read; move it to "
                "spec.template.metadata.annotations"
            ],
        ),
        (
            cron_job({FLAG_SET: "checkout"}),
            [
                f"annotation {FLAG_SET} of the CronJob is not read; move it to "
                "spec.jobTemplate.spec.template.metadata.annotations"
            ],
        ),
        (
            workload(pod_labels={ENABLED: "true"}),
            [
                f"label {ENABLED} is not read; write it as an annotation, at "
                "spec.template.metadata.annotations"
            ],
        ),
        (
            workload(below={"openfeature.dev/enable": "true"}),
            [f"annotation openfeature.dev/enable is not read; did you mean {ENABLED!r}?"],
        ),
        (
            workload(below={"flagstaff.dev/flag-set": "checkout"}),
            [f"annotation flagstaff.dev/flag-set is not read; did you mean {FLAG_SET!r}?"],
        ),
    ],
)
def test_what_nearly_asks_for_an_evaluator_is_noted(manifest: dict[str, Any], messages: list[str]) -> None:
    assert [miss.message for miss in near_misses(manifest)] == messages


def test_few_of_many_unknown_annotations_are_compared() -> None:
    many = {f"openfeature.dev/featureflagsourc{number}": "x" for number in range(1_000)}
    assert len([*near_misses(workload(below=many))]) == 8


@pytest.mark.parametrize(
    "manifest",
    [
        workload(below={ENABLED: "true", FLAG_SET: "checkout"}),
        workload(annotations={ENABLED: "true"}, below={ENABLED: "true"}),
        workload(below={ENABLED: "false"}),
        workload(below={ENABLED: "off"}),
        workload(annotations={"openfeature.dev/flags": "{}"}),
        workload(annotations={"openfeature.dev/standing-orders": "kill"}),
        workload(below={"openfeature.dev/somebody-elses": "x", "example.com/enabled": "True"}),
        {"kind": "Service", "metadata": {"annotations": {ENABLED: "True"}}},
        {"kind": "Deployment", "metadata": None, "spec": "no object"},
        None,
    ],
)
def test_what_asks_rightly_or_not_at_all_is_not_noted(manifest: object) -> None:
    assert [*near_misses(manifest)] == []


def test_inject_and_lint_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "checkout.yaml"
    file.write_text(yaml.safe_dump(workload(below={ENABLED: "True"})))
    assert main(["inject", "-f", str(file)]) == 0
    assert f"Deployment checkout: annotation {ENABLED} is 'True'" in capsys.readouterr().err
    assert main(["lint", "-f", str(file)]) == 0
    printed = capsys.readouterr().out
    assert f"note: Deployment checkout: spec.template.metadata.annotations: annotation {ENABLED}" in printed
