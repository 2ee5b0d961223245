"""`flagstaff migrate check` and `values` on files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from controller.cli import main

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """\
apiVersion: v1
kind: List
items:
  - apiVersion: core.openfeature.dev/v1beta1
    kind: FeatureFlagSource
    metadata: {name: flags}
    spec:
      sources:
        - source: checkout
          provider: file
"""
VALUES = """\
sidecarConfiguration:
  image: {repository: ghcr.io/open-feature/flagd, tag: v0.15.4}
  port: 8080
flagdProxyConfiguration: {port: 9015, replicaCount: 2}
unheardOf: 1
"""


def test_a_refusal_is_printed_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "source.yaml").write_text(SOURCE.replace("file", "disk"))
    (tmp_path / "README.md").write_text("no: [yaml")
    assert main(["migrate", "check", "-f", str(tmp_path)]) == 1
    output = capsys.readouterr().out
    assert (
        f"{tmp_path}/source.yaml:10: refused: spec.sources[0].provider: provider 'disk' is unknown" in output
    )
    assert (
        output.index("Keep the definitions")
        < output.index("Install Flagstaff")
        < output.index("remove the operator")
    )


def test_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "source.yaml"
    file.write_text(SOURCE.replace("file", "flagd-proxy"))
    assert main(["migrate", "check", "-o", "json", "-f", str(file), "-n", "shop"]) == 0
    report = json.loads(capsys.readouterr().out)
    (about,) = report["objects"]
    assert (about["kind"], about["namespace"], about["file"]) == ("FeatureFlagSource", "shop", str(file))
    assert {each["field"]: (each["line"], each["fate"]) for each in about["fields"]} == {
        "spec.sources[0].source": (9, "kept"),
        "spec.sources[0].provider": (10, "kept"),
    }
    assert report["steps"][0]["commands"][0].endswith("helm.sh/resource-policy=keep")


def test_a_file_that_cannot_be_read_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.yaml").write_text("a: [")
    for verb in ("check", "values"):
        assert main(["migrate", verb, "-f", str(tmp_path / "bad.yaml")]) == 2
        assert main(["migrate", verb, "-f", str(tmp_path / "none.yaml")]) == 2
    assert "not YAML" in capsys.readouterr().err


def test_helm_values_become_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(VALUES)
    assert main(["migrate", "values", "-f", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "sidecarConfiguration.image.repository: changed: flagstaff controller --compat=openfeature-operator "
        "--evaluator-image=ghcr.io/open-feature/flagd:v0.15.4"
    )
    assert lines[1].startswith(
        "sidecarConfiguration.port: changed: in FeatureFlagSources: port; the operator's own"
    )
    assert lines[2:] == [
        "flagdProxyConfiguration.port: changed: flagstaff proxy --sync-port=9015",
        "flagdProxyConfiguration.replicaCount: changed: spec.replicas of flagstaff-proxy, or controller "
        "--proxy-replicas for some on demand",
        "unheardOf: ignored: Flagstaff has no such setting",
    ]
    assert main(["migrate", "values", "-f", str(file), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[2]["option"] == "proxy --sync-port=9015"


def test_nothing_is_changed_but_by_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["migrate", "apply"])
    assert "--dry-run" in capsys.readouterr().err


def test_defaults_of_the_chart_are_counted_and_not_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(
        "flagdProxyConfiguration:\n  port: 8015\n  debugLogging: true\n"
        "  image: {repository: ghcr.io/open-feature/flagd-proxy, tag: v0.6.2}\n"
    )
    assert main(["migrate", "values", "-f", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "flagdProxyConfiguration.debugLogging: changed: proxy --verbose in its Deployment",
        "3 values are the chart's defaults: nothing has to be done about them",
    ]
