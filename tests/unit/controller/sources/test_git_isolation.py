from __future__ import annotations

import asyncio
import shlex
import stat
from pathlib import Path

import pytest

from controller.api.addresses import parse_location
from controller.sources.git_credentials import Credentials
from controller.sources.git_program import environment, secret_files, ssh_command

SECRET = "s3cr3t"  # noqa: S105 - it guards nothing
KEYED = Credentials("", "", f"KEY {SECRET}", "host ssh-ed25519 AAAA")


def configuration(values: dict[str, str]) -> dict[str, str]:
    count = int(values["GIT_CONFIG_COUNT"])
    return {values[f"GIT_CONFIG_KEY_{i}"]: values[f"GIT_CONFIG_VALUE_{i}"] for i in range(count)}


@pytest.mark.parametrize(
    ("text", "protocol"),
    [("https://h/r", "https"), ("http://h/r", "http"), ("h:r", "ssh"), ("/srv/r", "file")],
)
def test_only_the_locations_own_protocol_is_spoken(text: str, protocol: str) -> None:
    assert environment(parse_location(text), None, None)["GIT_ALLOW_PROTOCOL"] == protocol


def test_no_configuration_of_a_user_and_no_prompt_has_an_effect() -> None:
    values = environment(parse_location("https://h/r"), None, None)
    nobodys = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    silent = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "HOME": "/nonexistent"}
    assert nobodys.items() | silent.items() <= values.items()
    assert configuration(values)["core.hooksPath"] == "/dev/null"
    assert configuration(values)["credential.helper"] == ""


def test_a_password_is_for_one_origin_and_not_in_the_configuration() -> None:
    values = environment(parse_location("https://h:8443/a/r"), Credentials("me", SECRET), None)
    assert values["FLAGSTAFF_PASSWORD"] == SECRET
    asked = configuration(values)
    assert "credential.https://h:8443.helper" in asked
    assert SECRET not in str(asked)


@pytest.mark.parametrize("text", ["ssh://h/r", "/srv/r"])
def test_a_password_is_not_given_where_it_is_not_asked_for(text: str) -> None:
    values = environment(parse_location(text), Credentials("me", SECRET), None)
    assert SECRET not in str(values)


def test_ssh_never_asks_and_never_trusts_an_unknown_host() -> None:
    for credentials in (None, KEYED):
        words = shlex.split(ssh_command(credentials, Path("/tmp/x")))
        assert {"BatchMode=yes", "StrictHostKeyChecking=yes"} <= set(words)


def test_a_user_without_credentials_keeps_their_own_keys_and_hosts() -> None:
    words = ssh_command(None, None)
    assert "-F" not in words
    assert "UserKnownHostsFile" not in words
    assert "IdentitiesOnly" not in words


def test_given_keys_and_hosts_are_the_only_ones() -> None:
    words = shlex.split(ssh_command(KEYED, Path("/tmp/a b")))
    assert "UserKnownHostsFile=/tmp/a b/known_hosts" in words
    assert "GlobalKnownHostsFile=/dev/null" in words
    assert {"/tmp/a b/key", "IdentitiesOnly=yes", "IdentityAgent=none"} <= set(words)


async def test_a_key_is_in_a_file_for_its_owner_alone_and_only_for_a_while() -> None:
    async with secret_files(KEYED) as folder:
        assert folder is not None
        text, *modes = await asyncio.to_thread(
            lambda: ((folder / "key").read_text(), (folder / "key").stat().st_mode, folder.stat().st_mode)
        )
    assert text == f"KEY {SECRET}\n"
    assert [stat.S_IMODE(mode) for mode in modes] == [0o600, 0o700]
    assert not await asyncio.to_thread(folder.exists)


@pytest.mark.parametrize("credentials", [None, Credentials("me", SECRET)])
async def test_without_a_key_there_are_no_files(credentials: Credentials | None) -> None:
    async with secret_files(credentials) as folder:
        assert folder is None
