"""The commands of examples/ci and of .pre-commit-hooks.yaml, run as the programs run them that read these."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.repositories import ENVIRONMENT, Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[4]
FLAGS: Final = "flags/overlays/production/checkout.yaml"
PROVIDERS: Final = (
    "github",
    *(pytest.param(each, marks=pytest.mark.long) for each in ("gitea", "gitlab", "bitbucket")),
)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "flags")
    shutil.copytree(ROOT / "examples/gitops-repo", made.path, dirs_exist_ok=True)
    made.commit("first")
    return made


class CodeHost(ThreadingHTTPServer):
    """Keeps the comments of a pull request, as each code host does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Comments)
        self.comments: dict[int, dict[str, Any]] = {number: {"body": "other"} for number in range(1, 100)}
        self.methods: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def ours(self) -> list[str]:
        """The texts of the comments of `flagstaff plan`."""
        texts = (comment.get("body") or comment["content"]["raw"] for comment in self.comments.values())
        return [text for text in texts if text.startswith("[//]: # (flagstaff plan production)")]


class _Comments(BaseHTTPRequestHandler):
    server: CodeHost

    def do_GET(self) -> None:
        page = [{"id": number, **comment} for number, comment in self.server.comments.items()]
        self._answer({"values": page} if "/pullrequests/" in self.path else page)

    def do_POST(self) -> None:
        self._write(max(self.server.comments) + 1)

    def do_PATCH(self) -> None:
        self._write(self._number())

    def do_PUT(self) -> None:
        self._write(self._number())

    def do_DELETE(self) -> None:
        self.server.methods.append(self.command)
        del self.server.comments[self._number()]
        self._answer(None)

    def _number(self) -> int:
        return int(self.path.rpartition("/")[2])

    def _write(self, number: int) -> None:
        self.server.methods.append(self.command)
        self.server.comments[number] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer({"id": number})

    def _answer(self, value: Any) -> None:
        text = b"" if value is None else json.dumps(value).encode()
        self.send_response(204 if value is None else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[CodeHost]:
    with CodeHost() as host:
        thread = threading.Thread(target=host.serve_forever)
        thread.start()
        try:
            yield host
        finally:
            host.shutdown()
            thread.join()


@pytest.fixture
def server() -> Iterator[CodeHost]:
    with serving() as host:
        yield host


def steps(provider: str) -> tuple[dict[str, str], list[str]]:
    """The variables and the commands of a pipeline, without the installation."""
    pipeline: dict[str, Any] = yaml.safe_load((ROOT / f"examples/ci/{provider}.yaml").read_text())
    if provider == "gitlab":
        return pipeline["flags"]["variables"], ["\n".join(pipeline["flags"]["script"])]
    if provider == "bitbucket":
        script = pipeline["pipelines"]["pull-requests"]["**"][0]["step"]["script"]
        return {}, ["\n".join(line for line in script if not line.startswith("pip "))]
    return pipeline["env"], [
        step["run"]
        for step in pipeline["jobs"]["flags"]["steps"]
        if step.get("name") not in {None, "install"}
    ]


def run(provider: str, repository: Repository, base: str, server: CodeHost) -> list[int]:
    """The exit code of each step."""
    variables, commands = steps(provider)
    origin = server.url
    repository.git("update-ref", "refs/remotes/origin/main", base)
    (repository.path / "ci").mkdir(exist_ok=True)
    shutil.copy(ROOT / "examples/ci/comment.py", repository.path / "ci")
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
        "BITBUCKET_API_URL": origin,
        "BITBUCKET_REPO_FULL_NAME": "shop/flags",
        "BITBUCKET_PR_ID": "7",
        "BITBUCKET_PR_DESTINATION_BRANCH": "main",
    }
    return [
        subprocess.run(
            ["bash", "-e", "-c", command], cwd=repository.path, env=environment, check=False
        ).returncode
        for command in commands
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_pull_request_has_one_comment_that_says_what_it_does_to_users_now(
    provider: str, repository: Repository, server: CodeHost
) -> None:
    base = repository.git("rev-parse", "HEAD")
    snow = "flags: {snow: {state: ENABLED, variants: {s: 1}, defaultVariant: s, metadata: {owner: shop}}}\n"
    repository.commit("snow", **{"flags/overlays/production/snow__yaml": snow})
    assert set(run(provider, repository, base, server)) == {0}
    (first,) = server.ours
    assert "+ snow: added, default s (1)\n    no test covers it\n" in first
    repository.commit("more snow", **{"flags/overlays/production/snow__yaml": snow.replace("1", "2")})
    assert set(run(provider, repository, base, server)) == {0}
    (second,) = server.ours
    assert "+ snow: added, default s (2)" in second
    repository.git("rm", "-q", "flags/overlays/production/snow.yaml")
    repository.git("commit", "-q", "-m", "no snow")
    assert set(run(provider, repository, base, server)) == {0}
    assert server.ours == []
    assert server.methods == ["POST", "PATCH" if provider in {"github", "gitea"} else "PUT", "DELETE"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_bad_definition_fails_the_pipeline(provider: str, repository: Repository, server: CodeHost) -> None:
    base = repository.git("rev-parse", "HEAD")
    repository.commit("bad", **{f"{FLAGS.removesuffix('.yaml')}__yaml": "flags: {snow: {state: ON}}\n"})
    codes = run(provider, repository, base, server)
    assert 1 in codes
    assert "snow" in server.ours[0]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_a_test_does_not_expect_fails_the_pipeline(
    provider: str, repository: Repository, server: CodeHost
) -> None:
    base = repository.git("rev-parse", "HEAD")
    file = repository.path / "flags/base/checkout.yaml"
    repository.commit(
        "few items", **{"flags/base/checkout__yaml": file.read_text().replace("gold", "silver")}
    )
    assert 1 in run(provider, repository, base, server)
    assert 'the test "gold customers may take many items" fails' in server.ours[0]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_a_policy_denies_fails_the_pipeline(
    provider: str, repository: Repository, server: CodeHost
) -> None:
    base = repository.git("rev-parse", "HEAD")
    file = repository.path / "flags/base/checkout.yaml"
    changed = file.read_text().replace("defaultVariant: standard", "defaultVariant: extended")
    repository.commit("extended for all", **{"flags/base/checkout__yaml": changed})
    assert 1 in run(provider, repository, base, server)
    assert "policy small-changes (Deny)" in server.ours[0]


def test_hooks_accept_the_example_and_refuse_a_bad_file(repository: Repository) -> None:
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    layers = ["--path", "flags/base", "--path", "flags/overlays/production"]
    given = {
        "flagstaff-lint": ["flags/base/checkout.yaml"],
        "flagstaff-lint-layers": layers,
        "flagstaff-lint-manifests": ["-f", "clusters"],
        "flagstaff-fmt": [],
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
    assert code("flagstaff-fmt", []) == 0
    assert (repository.path / "bad.yaml").read_text() == 'flags: {snow: {state: "ON"}}\n'
