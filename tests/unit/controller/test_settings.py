"""Settings of the controller and the proxy, from texts."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from controller.flagsets.provenance import ProvenanceDetail
from controller.settings import (
    AuthMode,
    ControllerSettings,
    InvalidSettingError,
    LogFormat,
    ProxySettings,
    from_env,
    value_of,
)

TEXTS: dict[str, tuple[str, str, Any]] = {
    "a path": ("storage_path", "/srv", Path("/srv")),
    "a list": ("namespaces", "a, b,", ("a", "b")),
    "hosts": ("artifact_hosts", ".svc, a:1", (".svc", "a:1")),
    "a port": ("artifact_port", "0", 0),
    "yes": ("leader_election", "True", True),
    "no": ("leader_election", "false", False),
    "the log's form": ("log_format", "json", LogFormat.JSON),
    "what is told of commits": ("provenance", "commit", ProvenanceDetail.COMMIT),
    "a text": ("host", "::1", "::1"),
}


@pytest.mark.parametrize(("name", "text", "value"), TEXTS.values(), ids=TEXTS)
def test_the_environment_sets_what_it_names(name: str, text: str, value: Any) -> None:
    found = from_env(ControllerSettings, {f"FLAGSTAFF_{name.upper()}": text})
    assert getattr(found, name) == value


WRONG = {
    "a port too high": (
        ControllerSettings,
        "artifact_port",
        "65536",
        "whole number from 0 to 65535",
    ),
    "no port": (ControllerSettings, "receiver_port", "-1", "from 0 to 65535"),
    "no worker": (ControllerSettings, "workers", "0", "from 1 to 256"),
    "neither yes nor no": (ControllerSettings, "allow_local", "1", "one of true, false"),
    "an unknown word": (ProxySettings, "auth", "maybe", "one of off, warn, enforce"),
    "an unknown form": (ControllerSettings, "log_format", "xml", "one of console, json"),
    "no object": (ProxySettings, "context", "[1]", "a JSON object"),
    "not even JSON": (ProxySettings, "context", "[" * 100_000, "a JSON object"),
}


@pytest.mark.parametrize(("kind", "name", "text", "must"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_meant_is_told_with_its_name(
    kind: type[ControllerSettings] | type[ProxySettings], name: str, text: str, must: str
) -> None:
    with pytest.raises(InvalidSettingError, match=rf"^--x is .*: must be .*{must}"):
        value_of(kind, name, text, "--x is")


def test_a_pod_s_name_is_ours_and_without_one_no_two_processes_share_theirs() -> None:
    within = from_env(ControllerSettings, {"POD_NAME": "controller-0"})
    assert (within.identity, within.pod) == ("controller-0", "controller-0")
    outside = from_env(ControllerSettings, {})
    assert (outside.identity, outside.pod) == (f"{socket.gethostname()}-{os.getpid()}", "")


def test_a_proxy_s_settings_are_read_in_the_same_way() -> None:
    found = from_env(ProxySettings, {"FLAGSTAFF_AUTH": "enforce", "FLAGSTAFF_CONTEXT": '{"a": 1}'})
    assert (found.auth, found.context) == (AuthMode.ENFORCE, {"a": 1})
    assert found.identity == socket.gethostname()
