"""Git's environment: no prompt, no user's configuration, one protocol, and no secret in an argument."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from typing import TYPE_CHECKING, Final

from controller.api.parsing.git_url import Location, Transport
from controller.runtime.process.temporary import TemporaryFolder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from pathlib import Path

    from controller.sources.git_cli.git_credentials import Credentials

# Asked by git for one origin only, so a redirect to another host is given nothing; the secret stays in the
# environment.
_ASKED = '!f() { printf "username=%s\\npassword=%s\\n" "$FLAGSTAFF_USERNAME" "$FLAGSTAFF_PASSWORD"; }; f'

_ASKPASS = """#!/bin/sh
printf '%s\\n' "$FLAGSTAFF_KEY_PASSWORD"
"""
"""Asked by ssh; the password itself stays in the environment."""
_TLS: Final = {"ca.crt": "http.sslCAInfo", "tls.crt": "http.sslCert", "tls.key": "http.sslKey"}
"""Files of the credentials' Tls, in the order of its fields, and the options of git that name them."""
_SSH_USER = "git"
"""As with Flux, and as every forge has it."""


def environment(
    location: Location,
    credentials: Credentials | None,
    folder: Path | None,
    more: Iterable[tuple[str, str]] = (),
) -> dict[str, str]:
    """All of git's environment; `folder` is that of `secret_files`, `more` is configuration beside ours."""
    configuration = [
        *more,
        ("protocol.version", "2"),
        # A few small limits keep git's address space near to what a repository of flags needs.
        ("pack.threads", "1"),
        ("core.packedGitWindowSize", "16m"),
        ("core.packedGitLimit", "64m"),
        ("core.hooksPath", os.devnull),
        ("gc.autoDetach", "false"),
        ("maintenance.autoDetach", "false"),
        ("gc.pruneExpire", "1.hour.ago"),
        ("credential.helper", ""),
    ]
    result = {
        **_own_variables(),
        "MALLOC_ARENA_MAX": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "GIT_ALLOW_PROTOCOL": location.transport.value,
        "GIT_OPTIONAL_LOCKS": "0",
        # No .netrc and no .curlrc; ssh finds the user's own folder by itself.
        "HOME": "/nonexistent",
        "XDG_CONFIG_HOME": "/nonexistent",
    }
    if credentials is not None and location.transport in {Transport.HTTP, Transport.HTTPS}:
        configuration += _http(location, credentials, folder)
        result["FLAGSTAFF_USERNAME"] = credentials.username
        result["FLAGSTAFF_PASSWORD"] = credentials.password
        if credentials.proxy:
            result["NO_PROXY"] = result["no_proxy"] = ""
    if location.transport is Transport.SSH:
        user = "" if "@" in location.url else _SSH_USER
        result["GIT_SSH_COMMAND"] = ssh_command(credentials, folder, user)
        if credentials is not None and credentials.key_password:
            result["FLAGSTAFF_KEY_PASSWORD"] = credentials.key_password
        result["GIT_SSH_VARIANT"] = "ssh"
    result["GIT_CONFIG_COUNT"] = str(len(configuration))
    for index, (key, value) in enumerate(configuration):
        result[f"GIT_CONFIG_KEY_{index}"] = key
        result[f"GIT_CONFIG_VALUE_{index}"] = value
    return result


def _own_variables() -> dict[str, str]:
    """Our own environment, such as proxies and ssh's agent, without what would redirect git or weaken it."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") and name != "SSH_ASKPASS"
    }


def _http(location: Location, credentials: Credentials, folder: Path | None) -> list[tuple[str, str]]:
    """In the environment, which only we and root can read, as all may read a program's arguments."""
    configuration = []
    if credentials.username:
        configuration.append((f"credential.{location.origin}.helper", _ASKED))
    if credentials.bearer:
        header = f"Authorization: Bearer {credentials.bearer}"
        # Git would send the header on to wherever it is redirected.
        configuration += [(f"http.{location.origin}.extraHeader", header), ("http.followRedirects", "false")]
    if credentials.proxy:
        configuration.append(("http.proxy", credentials.proxy))
    if folder is not None:
        files = zip(_TLS.items(), credentials.tls, strict=True)
        configuration += [(key, str(folder / file)) for (file, key), text in files if text]
    return configuration


def ssh_command(credentials: Credentials | None, folder: Path | None, user: str = "") -> str:
    """The user's own keys and known hosts, unless the credentials bring theirs; `user`: of a given key."""
    words = ["ssh", "-o", "StrictHostKeyChecking=yes"]
    asks = folder is not None and credentials is not None and bool(credentials.key_password)
    if folder is not None and asks:
        # In batch mode ssh would not ask for the key's password, and it must ask for nothing else.
        words[:0] = ["env", f"SSH_ASKPASS={folder / 'askpass'}", "SSH_ASKPASS_REQUIRE=force"]
        words += ["-o", "NumberOfPasswordPrompts=1", "-o", "PreferredAuthentications=publickey"]
    else:
        words += ["-o", "BatchMode=yes"]
    if folder is not None and credentials is not None:
        if credentials.known_hosts:
            words += ["-o", f"UserKnownHostsFile={folder / 'known_hosts'}"]
            words += ["-o", f"GlobalKnownHostsFile={os.devnull}"]
        if credentials.ssh_key:
            words += ["-F", os.devnull, "-i", str(folder / "key")]
            words += ["-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none"]
            words += ["-o", f"User={user}"] if user else []
    return shlex.join(words)


@contextlib.asynccontextmanager
async def secret_files(credentials: Credentials | None) -> AsyncIterator[Path | None]:
    """A folder with what the credentials have for files; None: nothing. Raises OSError."""
    texts = _texts(credentials) if credentials is not None else {}
    if not texts:
        yield None
        return
    folder = await asyncio.to_thread(_write_files, texts)
    try:
        yield folder.path
    finally:
        await asyncio.to_thread(folder.remove)


def _write_files(texts: Mapping[str, str]) -> TemporaryFolder:
    folder = TemporaryFolder.make()
    try:
        for file, text in texts.items():
            # ssh refuses a key that others may read, and one whose last line does not end.
            mode = 0o700 if file == "askpass" else 0o600
            descriptor = os.open(folder.path / file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                opened.write(text.rstrip("\n") + "\n")
    except BaseException:
        folder.remove()
        raise
    return folder


def _texts(credentials: Credentials) -> dict[str, str]:
    texts = {
        "key": credentials.ssh_key,
        "known_hosts": credentials.known_hosts,
        "askpass": _ASKPASS if credentials.key_password else "",
        **dict(zip(_TLS, credentials.tls, strict=True)),
    }
    return {file: text for file, text in texts.items() if text}
