"""docker-bake.hcl beside the Dockerfile, read without Docker by hcldec, a Go module that is built once (less
than a minute).
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.go import ROOT, Module, program

HCL: Final = Path(__file__).parent / "hcl"
HCLDEC: Final = Module(
    "hcldec",
    HCL,
    "hcldec, a reader of HCL: less than a minute",
    package="github.com/hashicorp/hcl/v2/cmd/hcldec",
)
DOCKERFILE: Final = (ROOT / "Dockerfile").read_text(encoding="utf-8")
VALUES: Final = {
    "REGISTRY": "ghcr.io/your-team", "VERSION": "1.2.3", "BASE": "python@sha256:1", "COMMIT": "abc",
    "SNAPSHOT": "20260101T000000Z", "SOURCE_DATE_EPOCH": "1",
}  # fmt: skip


@pytest.fixture(scope="module")
def bake() -> dict[str, Any]:
    reader = program(HCLDEC, "THE BAKE FILE IS NOT READ: hcldec cannot be built")
    words: list[str | Path] = ["--spec", HCL / "bake.hcldec", "--vars", json.dumps(VALUES)]
    done = subprocess.run(
        [reader, *words, ROOT / "docker-bake.hcl"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def test_both_images_are_baked_for_both_architectures_with_provenance_and_sbom(bake: dict[str, Any]) -> None:
    common = bake["target"]["image"]
    assert [bake["target"][name]["inherits"] for name in bake["group"]["default"]] == [["image"], ["image"]]
    assert common["platforms"] == ["linux/amd64", "linux/arm64"]
    assert common["attest"] == ["type=provenance,mode=max", "type=sbom"]


def test_targets_are_stages_of_the_dockerfile_and_tagged_with_registry_and_version(
    bake: dict[str, Any],
) -> None:
    stages = re.findall(r"^FROM \S+ AS (\w+)$", DOCKERFILE, re.MULTILINE)
    for name in bake["group"]["default"]:
        target = bake["target"][name]
        assert target["target"] in stages
        assert target["tags"] == [f"ghcr.io/your-team/flagstaff-{name}:1.2.3"]


def test_arguments_are_those_of_the_dockerfile_and_each_may_be_set(bake: dict[str, Any]) -> None:
    declared = set(re.findall(r"^ARG (\w+)", DOCKERFILE, re.MULTILINE))
    arguments = bake["target"]["image"]["args"]
    assert arguments.keys() == declared
    assert arguments == {name: VALUES[name] for name in declared}
    assert bake["variable"].keys() == VALUES.keys()
