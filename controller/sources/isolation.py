"""What git is run with: no prompt, nobody's configuration, one protocol, and no secret in an argument."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from controller.sources.location import Credentials, Location, Transport

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a caller's environment could redirect, weaken or make talkative: `env -u` drops them, as GitPython passes all on.
DROPPED = (
    *(
        "GIT_DIR",
        "GIT_COMMON_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_PREFIX",
    ),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE"),
    *("GIT_REPLACE_REF_BASE", "GIT_GRAFT_FILE", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS"),
    *("GIT_CONFIG_SYSTEM", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GIT_SSH", "GIT_PROXY_COMMAND"),
    *("GIT_SSL_NO_VERIFY", "GIT_CURL_VERBOSE", "GIT_TRACE", "GIT_TRACE_CURL", "GIT_TRACE_PACKET"),
    *("GIT_TRACE_SETUP", "GIT_TRACE2", "GIT_TRACE2_EVENT", "GIT_TRACE2_PERF", "SSH_ASKPASS"),
    *("GIT_PROTOCOL", "GIT_QUARANTINE_PATH", "GIT_DISCOVERY_ACROSS_FILESYSTEM"),
)
# Asked by git for one origin only, so a redirect to another host is given nothing; the secret stays in the environment.
_ASKED = (
    '!f() { printf "username=%s\\npassword=%s\\n" "$FLAGSTAFF_USERNAME" "$FLAGSTAFF_PASSWORD"; }; f'
)


def environment(
    location: Location, credentials: Credentials | None, folder: Path | None
) -> dict[str, str]:
    """What git runs with; `folder` holds `key` and `known_hosts` where the credentials have them."""
    configuration = [
        ("core.hooksPath", os.devnull),
        ("gc.autoDetach", "false"),
        ("maintenance.autoDetach", "false"),
        ("gc.pruneExpire", "1.hour.ago"),
        ("credential.helper", ""),
    ]
    result = {
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
        configuration.append((f"credential.{location.origin}.helper", _ASKED))
        result["FLAGSTAFF_USERNAME"] = credentials.username
        result["FLAGSTAFF_PASSWORD"] = credentials.password
    if location.transport is Transport.SSH:
        result["GIT_SSH_COMMAND"] = ssh_command(credentials, folder)
        result["GIT_SSH_VARIANT"] = "ssh"
    result["GIT_CONFIG_COUNT"] = str(len(configuration))
    for index, (key, value) in enumerate(configuration):
        result[f"GIT_CONFIG_KEY_{index}"] = key
        result[f"GIT_CONFIG_VALUE_{index}"] = value
    return result


def ssh_command(credentials: Credentials | None, folder: Path | None) -> str:
    """The user's own keys and known hosts, except where the credentials bring theirs: then only theirs count."""
    words = ["ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]
    if folder is not None and credentials is not None:
        if credentials.known_hosts:
            words += ["-o", f"UserKnownHostsFile={folder / 'known_hosts'}"]
            words += ["-o", f"GlobalKnownHostsFile={os.devnull}"]
        if credentials.ssh_key:
            words += ["-F", os.devnull, "-i", str(folder / "key")]
            words += ["-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none"]
    return shlex.join(words)


@contextlib.contextmanager
def secret_files(credentials: Credentials | None) -> Iterator[Path | None]:
    """A folder with `key` and `known_hosts`, gone afterwards; None where the credentials need none."""
    if credentials is None or not (credentials.ssh_key or credentials.known_hosts):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="flagstaff-ssh-") as name:
        folder = Path(name)
        for file, text in (("key", credentials.ssh_key), ("known_hosts", credentials.known_hosts)):
            # ssh refuses a key that others may read, and one whose last line does not end.
            descriptor = os.open(folder / file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                opened.write(text.rstrip("\n") + "\n")
        yield folder
