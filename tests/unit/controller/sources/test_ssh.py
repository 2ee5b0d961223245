"""Against a real sshd where there is one: who is believed, and who is let in."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from controller.runtime.setbacks import Failed
from controller.sources.location import Credentials, parse_location
from controller.sources.program import GitProgram
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")

pytestmark = pytest.mark.skipif(SSHD is None, reason="no sshd on this machine")


class Host(NamedTuple):
    port: int
    folder: Path

    def credentials(self, *, key: str = "user", host_key: str = "host") -> Credentials:
        public = (self.folder / f"{host_key}.pub").read_text()
        known = f"[127.0.0.1]:{self.port} {public}"
        return Credentials(ssh_key=(self.folder / key).read_text(), known_hosts=known)

    def ask(self, credentials: Credentials) -> str:
        path = self.folder / "repository"
        url = f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}{path}"
        return GitProgram(parse_location(url), credentials, 30.0).list_references()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "user", "stranger"):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(made, check=True)
    Repository(folder / "repository").commit("first")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "user.pub",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
    }
    configuration = folder / "sshd_config"
    configuration.write_text("".join(f"{name} {value}\n" for name, value in options.items()))
    command = [str(SSHD), "-D", "-e", "-f", str(configuration)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        lines = server.stderr or ()
        said: list[str] = []
        try:
            for line in lines:
                said.append(line)
                if "Server listening" in line:
                    break
            else:
                pytest.skip(f"sshd does not start here: {' '.join(said).strip()}")
            yield Host(port, folder)
        finally:
            server.terminate()


def test_a_known_host_with_the_right_key_is_read(host: Host) -> None:
    assert "refs/heads/main" in host.ask(host.credentials())


def test_a_host_with_another_key_is_refused(host: Host) -> None:
    with pytest.raises(Failed) as setback:
        host.ask(host.credentials(host_key="stranger"))
    assert setback.value.reason == "HostKeyRefused"


def test_an_unknown_host_is_refused(host: Host) -> None:
    elsewhere = "elsewhere.example ssh-ed25519 " + (host.folder / "host.pub").read_text().split()[1]
    key = (host.folder / "user").read_text()
    with pytest.raises(Failed) as setback:
        host.ask(Credentials(ssh_key=key, known_hosts=elsewhere))
    assert setback.value.reason == "HostKeyRefused"


def test_a_key_that_is_not_let_in_fails_without_a_prompt(host: Host) -> None:
    with pytest.raises(Failed) as setback:
        host.ask(host.credentials(key="stranger"))
    assert setback.value.reason == "AuthenticationFailed"
