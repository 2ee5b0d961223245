"""A push that a webhook reports, through the controller's own port."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster.assets import find
from tests.worlds.events import body_of, headers_of
from tests.worlds.flags import flags
from tests.worlds.objects import manifest, secret

if TYPE_CHECKING:
    from controller.api.flagreceiver import Sender
    from tests.cluster.objects import Namespace
    from tests.cluster.plugin import ControllerPorts
    from tests.cluster.spines import Spine

PAGE: Final = Path(__file__).parents[2] / "docs" / "kinds" / "flagreceiver.md"
NEXT: Final = {"token": "another-of-many-characters", "previousToken": "a-token-of-forty-random-characters"}
TOKEN: Final = "a-token-of-forty-random-characters"


def receiver(**spec: Any) -> dict[str, Any]:
    wanted = {"type": "generic-hmac", "secretRef": {"name": "push-token"}, "resources": [{"name": "*"}]}
    return manifest("FlagReceiver", "push", wanted | spec)


def print_page(space: Namespace, ports: ControllerPorts, folder: Path) -> str:
    """What the page's own command prints, run in a repository."""
    found = re.search(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    script = found[1].replace(":9292", f":{ports.receiver}").replace("-n checkout", f"-n {space.name}")
    environment = {
        **os.environ,
        "PATH": f"{find()}:{os.environ['PATH']}",
        "KUBECONFIG": str(space.plane.kubeconfig),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def repository(spine: Spine) -> Path:
    """The spine's own, knowing its remote; a receiver is ready."""
    folder = spine.repository.path
    subprocess.run(["git", "remote", "add", "origin", spine.url], cwd=folder, check=True)
    spine.apply(secret("push-token", token=TOKEN), receiver())
    spine.wait_ready("flagreceiver", "push")
    return folder


def test_the_command_on_the_page_brings_a_commit_at_once(
    spine: Spine, controller_ports: ControllerPorts, repository: Path
) -> None:
    commit = spine.repository.commit("off", flags__json=flags(banner="off"))
    said = print_page(spine, controller_ports, repository)
    assert f'"FlagSource/{spine.name}/flags"' in said
    spine.wait_applied(commit)
    assert spine.served_variants() == {"banner": "off"}


def test_a_push_is_looked_for_until_the_git_server_shows_it(
    spine: Spine, controller_ports: ControllerPorts, repository: Path
) -> None:
    branch = ["git", "symbolic-ref", "HEAD"]
    subprocess.run([*branch, "refs/heads/behind"], cwd=repository, check=True)
    commit = spine.repository.commit("reported too early", flags__json=flags(banner="off"))
    print_page(spine, controller_ports, repository)
    spine.wait_ready("flagsource")
    subprocess.run(["git", "branch", "--force", "main", commit], cwd=repository, check=True)
    spine.wait_applied(commit)


@pytest.mark.parametrize("sender", ["github", "gitlab", "gitea"])
def test_a_forges_push_brings_the_commit_that_it_names(
    spine: Spine, controller_ports: ControllerPorts, sender: Sender
) -> None:
    spine.apply(secret("push-token", token=TOKEN), receiver(type=sender))
    path = spine.wait_ready("flagreceiver", "push")["status"]["webhookPath"]
    commit = spine.repository.commit("off", flags__json=flags(banner="off"))
    body = body_of(payload_of(sender, spine.url, commit))
    signed = headers_of(sender, body, token=TOKEN.encode())
    sent = [word for name, text in signed for word in ("-H", f"{name}: {text}")]
    url = f"http://127.0.0.1:{controller_ports.receiver}{path}"
    command = ["curl", "-sS", "--fail-with-body", "--data-binary", body.decode(), *sent, url]
    subprocess.run(command, check=True, capture_output=True)
    spine.wait_applied(commit)


def payload_of(sender: str, url: str, commit: str) -> dict[str, Any]:
    """What a forge sends of a push."""
    push = {"ref": "refs/heads/main", "after": commit}
    if sender == "gitlab":
        return {"object_kind": "push", **push, "checkout_sha": commit, "project": {"git_http_url": url}}
    return {**push, "head_commit": {"id": commit}, "repository": {"clone_url": url}}


def test_a_receiver_without_its_secret_is_ready_as_soon_as_that_is_there(space: Namespace) -> None:
    space.apply(receiver())
    space.wait_reason("flagreceiver", "TokenNotFound", "push")
    space.apply(secret("push-token", token=TOKEN))
    found = space.wait_ready("flagreceiver", "push")
    assert re.fullmatch(r"/hook/[0-9a-f]{64}", found["status"]["webhookPath"])
    space.delete("secret", "push-token")
    found = space.wait_reason("flagreceiver", "TokenNotFound", "push")
    assert "webhookPath" not in found["status"]


def test_another_token_makes_another_path_and_says_so(space: Namespace) -> None:
    space.apply(secret("push-token", token=TOKEN), receiver())
    before = space.wait_ready("flagreceiver", "push")["status"]["webhookPath"]
    space.apply(secret("push-token", **NEXT))
    space.wait("flagreceiver", lambda it: it["status"]["webhookPath"] != before, "push")
    space.wait("flagreceiver", lambda _: "PathChanged" in reasons(space), "push")


def reasons(space: Namespace) -> set[str]:
    return {each["reason"] for each in space.events("push")}


def test_a_suspended_receiver_answers_503(
    spine: Spine, controller_ports: ControllerPorts, repository: Path
) -> None:
    spine.apply(receiver(suspend=True))
    path = spine.get("flagreceiver", "push")["status"]["webhookPath"]
    spine.wait("flagreceiver", lambda _: status_of(controller_ports, path) == "503", "push")
    assert repository.is_dir()


def status_of(ports: ControllerPorts, path: str) -> str:
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-d", "{}"]
    url = f"http://127.0.0.1:{ports.receiver}{path}"
    return subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
