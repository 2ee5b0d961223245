"""Against a real SSH server: who is believed, and who is let in."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from controller.api.addresses import Transport, parse_location
from controller.runtime.secret_texts import SecretTexts
from controller.runtime.setbacks import Failed
from controller.sources.deadline import Deadline
from controller.sources.git_credentials import Credentials, credentials_from
from controller.sources.git_program import GitProgram
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.git_ssh import SshHost

PASSWORD = "0pen-s3sam3"  # noqa: S105 - it guards nothing

pytestmark = pytest.mark.skipif(
    shutil.which("ssh") is None,
    reason="NO SSH CLIENT ON THIS MACHINE: Git over SSH is not tested; install openssh-client",
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    from tests.git_ssh import make_key, ssh_host

    folder = tmp_path_factory.mktemp("ssh")
    Repository(folder / "repository").commit("first")
    with ssh_host(folder) as running:
        make_key(folder, "locked", PASSWORD)
        with (folder / "user.pub").open("a") as known:
            known.write((folder / "locked.pub").read_text())
        yield running


def ask(host: SshHost, credentials: Credentials | None, user: str = "git") -> str:
    location = parse_location(host.url(host.folder / "repository", user))
    program = GitProgram(location, credentials, Deadline(30.0, location.shown))
    return asyncio.run(program.list_references())


def credentials(host: SshHost, *, key: str = "user", host_key: str = "host") -> Credentials:
    return Credentials(ssh_key=host.key(key), known_hosts=host.known_hosts(host_key))


def refusal_of(host: SshHost, asker: Credentials) -> Failed:
    with pytest.raises(Failed) as setback:
        ask(host, asker)
    return setback.value


def test_a_known_host_with_the_right_key_is_read(host: SshHost) -> None:
    assert "refs/heads/main" in ask(host, credentials(host))


@pytest.mark.parametrize(("named", "user"), [("", "git"), ("deploy", "deploy")])
def test_a_url_without_a_user_connects_as_git(host: SshHost, named: str, user: str) -> None:
    ask(host, credentials(host), named)
    assert host.users[-1] == user


def test_a_host_with_another_key_is_refused(host: SshHost) -> None:
    assert refusal_of(host, credentials(host, host_key="stranger")).reason == "HostKeyRefused"


def test_an_unknown_host_is_refused(host: SshHost) -> None:
    elsewhere = "elsewhere.example " + host.known_hosts().partition(" ")[2]
    setback = refusal_of(host, Credentials(ssh_key=host.key(), known_hosts=elsewhere))
    assert setback.reason == "HostKeyRefused"


def test_a_key_that_is_not_let_in_fails_without_a_prompt(host: SshHost) -> None:
    assert refusal_of(host, credentials(host, key="stranger")).reason == "AuthenticationFailed"


def locked_credentials(host: SshHost, password: str) -> Credentials | None:
    content = {"identity": host.key("locked"), "known_hosts": host.known_hosts()}
    content["password"] = password
    encoded = {key: text.encode() for key, text in content.items()}
    return credentials_from(SecretTexts("apps/git", encoded), Transport.SSH)


def test_a_key_with_a_password_opens_with_it_and_the_password_is_not_shown(host: SshHost) -> None:
    host.command_lines.clear()
    assert "refs/heads/main" in ask(host, locked_credentials(host, PASSWORD))
    assert any("upload-pack" in line for line in host.command_lines)
    assert not [line for line in host.command_lines if PASSWORD in line]


def test_a_key_with_another_password_fails_without_a_prompt(
    host: SshHost, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    wrong = locked_credentials(host, "wr0ng-one")
    assert wrong is not None
    setback = refusal_of(host, wrong)
    assert setback.reason == "AuthenticationFailed"
    assert "wr0ng-one" not in setback.message + caplog.text
