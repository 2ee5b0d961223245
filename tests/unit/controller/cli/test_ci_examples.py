"""The commands of examples/ci and of .pre-commit-hooks.yaml, run as the programs run them that read these."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.cluster.listener import run_listener
from tests.repositories import ENVIRONMENT, Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.listener import Listener

ROOT: Final = Path(__file__).parents[4]
FLAGS: Final = "flags/overlays/production/checkout.yaml"
PROVIDERS: Final = ("github", *(pytest.param(each, marks=pytest.mark.long) for each in ("gitea", "gitlab")))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "flags")
    shutil.copytree(ROOT / "examples/gitops-repo", made.path, dirs_exist_ok=True)
    made.commit("first")
    return made


@pytest.fixture
def server() -> Iterator[Listener]:
    with run_listener() as listener:
        yield listener


def steps(provider: str) -> tuple[dict[str, str], list[str]]:
    """The variables and the commands of a pipeline, without the installation."""
    pipeline: dict[str, Any] = yaml.safe_load((ROOT / f"examples/ci/{provider}.yaml").read_text())
    if provider == "gitlab":
        return pipeline["flags"]["variables"], ["\n".join(pipeline["flags"]["script"])]
    return pipeline["env"], [
        step["run"]
        for step in pipeline["jobs"]["flags"]["steps"]
        if step.get("name") not in {None, "install"}
    ]


def run(provider: str, repository: Repository, base: str, server: Listener) -> list[int]:
    """The exit code of each step."""
    variables, commands = steps(provider)
    origin = server.url.rpartition("/")[0]
    environment = {
        **ENVIRONMENT,
        **variables,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "BASE": base,
        "TOKEN": "t",
        "NUMBER": "7",
        "GITHUB_REPOSITORY": "shop/flags",
        "GITHUB_API_URL": origin,
        "GITHUB_SERVER_URL": origin,
        "CI_API_V4_URL": origin,
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
        "FLAGS_TOKEN": "t",
        "CI_PROJECT_ID": "1",
        "CI_MERGE_REQUEST_IID": "7",
    }
    return [
        subprocess.run(
            ["bash", "-e", "-c", command], cwd=repository.path, env=environment, check=False
        ).returncode
        for command in commands
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_pull_request_gets_a_comment_with_the_flags_that_it_changes(
    provider: str, repository: Repository, server: Listener
) -> None:
    base = repository.git("rev-parse", "HEAD")
    snow = "flags: {snow: {state: ENABLED, variants: {s: 1}, defaultVariant: s}}\n"
    repository.commit("snow", **{"flags/overlays/production/snow__yaml": snow})
    assert set(run(provider, repository, base, server)) == {0}
    (received,) = server.received
    assert "+ snow: s (1)" in received.event["body"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_bad_definition_fails_the_pipeline(provider: str, repository: Repository, server: Listener) -> None:
    base = repository.git("rev-parse", "HEAD")
    repository.commit("bad", **{f"{FLAGS.removesuffix('.yaml')}__yaml": "flags: {snow: {state: ON}}\n"})
    codes = run(provider, repository, base, server)
    assert 1 in codes
    assert "snow" in server.received[0].event["body"]


def test_hooks_accept_the_example_and_refuse_a_bad_file(repository: Repository) -> None:
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    layers = ["--path", "flags/base", "--path", "flags/overlays/production"]
    given = {
        "flagstaff-lint": ["flags/base/checkout.yaml"],
        "flagstaff-lint-layers": layers,
        "flagstaff-lint-manifests": ["-f", "clusters"],
    }
    assert given.keys() == hooks.keys()

    def code(hook: str, words: list[str]) -> int:
        program, *entry = shlex.split(hooks[hook]["entry"])
        command = [str(Path(sys.executable).parent / program), *entry, *words]
        return subprocess.run(command, cwd=repository.path, capture_output=True, check=False).returncode

    assert code("flagstaff-lint-layers", layers) == 0
    assert code("flagstaff-lint-manifests", ["-f", "clusters"]) == 0
    repository.write("bad.yaml", "flags: {snow: {state: ON}}\n")
    assert code("flagstaff-lint", ["bad.yaml"]) == 1
