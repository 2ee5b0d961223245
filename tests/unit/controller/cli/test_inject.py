"""`flagstaff inject`: manifests in, manifests out."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import yaml

from controller.cli import main
from controller.pods.installation import FlagSetFound, Options
from controller.pods.pod_injection import inject
from tests.worlds.pods import pod

EXAMPLES = Path(__file__).parents[4] / "examples" / "injection"
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"clusterIP": "None"}}
WORKLOAD = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "checkout", "namespace": "shop"},
    "spec": {"template": {key: pod()[key] for key in ("metadata", "spec")}},
}


class Served:
    """Every name is what is served."""

    def refer(self, *what: object) -> NoReturn:
        raise AssertionError(what)

    def flag_set(self, namespace: str, name: str, kinds: object = ()) -> FlagSetFound:
        del namespace, kinds
        return FlagSetFound(name)

    def spec(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        raise AssertionError(kind, namespace, name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "deployment.yaml"
    path.write_text(f"---\n{yaml.safe_dump(SERVICE)}\n---\n---\n{yaml.safe_dump(WORKLOAD)}")
    return path


def test_it_prints_what_the_webhook_would_make(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["inject", "-f", str(file), "--image", "mine:1", "--proxy-address", "proxy:1", "--proxy-ca", "ca"]
    assert main(words) == 0
    service, workload = yaml.safe_load_all(capsys.readouterr().out)
    wanted = inject(pod(), "shop", Options(image="mine:1", proxy_address="proxy:1", proxy_ca="ca"), Served())
    assert wanted is not None
    assert service == SERVICE
    assert workload["spec"]["template"]["spec"] == wanted.after["spec"]


@pytest.mark.parametrize("name", ["deployment.yaml", "pod.yaml"])
def test_the_example_gets_an_evaluator(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inject", "-f", str(EXAMPLES / name), "-n", "shop"]) == 0
    assert '"selector":"shop/checkout-production"' in capsys.readouterr().out


def test_a_workload_that_carries_flags_gets_an_evaluator_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    example = EXAMPLES.parent / "direct-set" / "deployment.yaml"
    assert main(["inject", "-f", str(example), "-n", "shop"]) == 0
    made = yaml.safe_load(capsys.readouterr().out)
    assert made["metadata"]["labels"] == {"flagstaff.dev/direct-set": "true"}
    assert '"selector":"shop/storefront"' in made["spec"]["template"]["spec"]["initContainers"][0]["args"][1]


def test_what_it_prints_it_leaves_as_it_is(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["inject", "-f", str(file)])
    once = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(once.encode())))
    assert main(["inject", "-f", "-"]) == 0
    assert capsys.readouterr().out == once


def test_the_namespace_is_that_of_manifests_that_name_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(pod()))
    assert main(["inject", "-f", str(path), "--namespace", "team"]) == 0
    assert '"selector":"team/checkout"' in capsys.readouterr().out


def test_one_refusal_and_nothing_is_printed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(file.read_text().replace("flagstaff.dev/flagset", "flagstaff.dev/flag-set"))
    assert main(["inject", "-f", str(file)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(
        f"flagstaff inject: {file}: Deployment shop/checkout: annotation flagstaff.dev/flag-set: "
        "unknown; did you"
    )


def test_a_feature_flag_source_is_looked_for_among_the_manifests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asks = pod({"flagstaff.dev/flagset": None, "openfeature.dev/featureflagsource": "flags"})
    source = {
        "kind": "FeatureFlagSource",
        "metadata": {"name": "flags"},
        "spec": {"sources": [{"source": "a"}]},
    }
    (tmp_path / "pod.yaml").write_text(json.dumps(asks))
    (tmp_path / "source.yaml").write_text(json.dumps(source))
    words = ["inject", "-n", "shop", "-f", str(tmp_path / "pod.yaml")]
    assert main(words) == 1
    assert "FeatureFlagSource shop/flags: is not among the manifests; add its file" in capsys.readouterr().err
    assert main([*words, "-f", str(tmp_path / "source.yaml")]) == 0
    assert '"selector":"shop/a"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, ": No such file"), ("a: [", ":1:5: not YAML: it ends too early"), ("a: \x00", ": not YAML:")],
)
def test_what_cannot_be_read_is_wrong_usage(
    tmp_path: Path, content: str | None, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "manifest.yaml"
    if content is not None:
        path.write_text(content)
    assert main(["inject", "-f", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"flagstaff inject: {path}{expected}")
