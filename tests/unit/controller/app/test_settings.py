"""Settings of the controller and the proxy, from texts."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from controller.app.settings import (
    DEFAULT_NAMESPACE,
    AuthMode,
    ControllerSettings,
    InvalidOptionError,
    LogFormat,
    ProxySettings,
    settings_of,
)
from controller.flagsets.compose import ProvenanceDetail

TEXTS: dict[str, tuple[str, str, Any]] = {
    "a path": ("storage_path", "/srv", Path("/srv")),
    "a list": ("namespaces", "a, b,", ("a", "b")),
    "hosts": ("artifact_hosts", ".svc, a:1", (".svc", "a:1")),
    "a port": ("artifact_port", "0", 0),
    "yes": ("leader_election", "True", True),
    "no": ("leader_election", "false", False),
    "the log's form": ("log_format", "json", LogFormat.JSON),
    "what is shown of commits": ("provenance", "commit", ProvenanceDetail.COMMIT),
    "a text": ("host", "::1", "::1"),
    "a URL": ("events_addr", "http://flux.svc.cluster.local./", "http://flux.svc.cluster.local./"),
}


@pytest.mark.parametrize(("name", "text", "value"), TEXTS.values(), ids=TEXTS)
def test_the_environment_sets_what_it_names(
    name: str, text: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"FLAGSTAFF_{name.upper()}", text)
    found = settings_of(ControllerSettings)
    assert getattr(found, name) == value


WRONG = {
    "a port too high": (ControllerSettings, "artifact_port", "65536", "less than or equal to 65535"),
    "no port": (ControllerSettings, "receiver_port", "-1", "greater than or equal to 0"),
    "no worker": (ControllerSettings, "workers", "0", "greater than or equal to 1"),
    "neither yes nor no": (ControllerSettings, "allow_local", "perhaps", "a valid boolean"),
    "an unknown word": (ProxySettings, "auth", "maybe", "'off', 'warn' or 'enforce'"),
    "an unknown form": (ControllerSettings, "log_format", "xml", "'console' or 'json'"),
    "a shard's lost label": (ControllerSettings, "watch_label_selector", "key=", "'key=' is no requirement"),
    "a Lease that is no label": (ControllerSettings, "lease_name", "a" * 64, "at most 63 lower-case letters"),
    "no object": (ProxySettings, "context", "[1]", "a JSON object"),
    "no URL": (ControllerSettings, "events_addr", "flux:80", "a URL such as"),
    "not even JSON": (ProxySettings, "context", "[" * 100_000, "a JSON object"),
}


@pytest.mark.parametrize(("kind", "name", "text", "must"), WRONG.values(), ids=WRONG)
def test_an_invalid_option_is_refused_with_its_name(
    kind: type[ControllerSettings] | type[ProxySettings], name: str, text: str, must: str
) -> None:
    with pytest.raises(InvalidOptionError, match=rf"^--{name.replace('_', '-')} is .*: must be .*{must}"):
        settings_of(kind, **{name: text})


def test_an_empty_selector_is_refused_as_a_shard_would_reconcile_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLAGSTAFF_WATCH_LABEL_SELECTOR", "")
    with pytest.raises(
        InvalidOptionError, match=r"^FLAGSTAFF_WATCH_LABEL_SELECTOR is '': must not be empty, as it would"
    ):
        settings_of(ControllerSettings)


SHARDS = {
    None: ("flagstaff-controller", "flagstaff-artifacts"),
    "!sharding.fluxcd.io/key": ("flagstaff-controller", "flagstaff-artifacts"),
    "sharding.fluxcd.io/key=shard1": ("flagstaff-controller-shard1", "flagstaff-artifacts-shard1"),
}


@pytest.mark.parametrize(("selector", "names"), SHARDS.items(), ids=map(str, SHARDS))
def test_lease_and_service_are_named_after_the_shard(selector: str | None, names: tuple[str, str]) -> None:
    given = {} if selector is None else {"watch_label_selector": selector}
    settings = settings_of(ControllerSettings, namespace="flags", **given)
    assert settings.lease == names[0]
    assert settings.artifact_server(9090) == f"{names[1]}.flags.svc.cluster.local.:9090"


def test_names_that_are_given_win_over_those_of_the_shard() -> None:
    settings = settings_of(
        ControllerSettings, watch_label_selector="team=a", lease_name="mine", artifact_address="a:1"
    )
    assert (settings.lease, settings.artifact_server(9090)) == ("mine", "a:1")


def test_a_pod_s_name_is_ours_and_without_one_no_two_processes_share_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POD_NAME", "controller-0")
    within = settings_of(ControllerSettings)
    assert (within.identity, within.pod) == ("controller-0", "controller-0")
    monkeypatch.delenv("POD_NAME")
    outside = settings_of(ControllerSettings)
    assert (outside.identity, outside.pod) == (f"{socket.gethostname()}-{os.getpid()}", "")


def test_an_empty_namespace_is_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGSTAFF_NAMESPACE", "")
    assert settings_of(ControllerSettings).namespace == DEFAULT_NAMESPACE


def test_a_proxy_s_settings_are_read_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGSTAFF_AUTH", "enforce")
    monkeypatch.setenv("FLAGSTAFF_CONTEXT", '{"a": 1}')
    found = settings_of(ProxySettings)
    assert (found.auth, found.context) == (AuthMode.ENFORCE, {"a": 1})
    assert found.identity == socket.gethostname()


def test_the_operator_s_variables_of_its_proxy_are_read_where_ours_are_not_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLAGD_PROXY_PORT", "9015")
    monkeypatch.setenv("FLAGD_PROXY_MANAGEMENT_PORT", "9016")
    found = settings_of(ProxySettings)
    assert (found.sync_port, found.management_port) == (9015, 9016)
    monkeypatch.setenv("FLAGSTAFF_MANAGEMENT_PORT", "9017")
    found = settings_of(ProxySettings, sync_port=9018)
    assert (found.sync_port, found.management_port) == (9018, 9017)
    assert settings_of(ControllerSettings).management_port == 9017
    monkeypatch.setenv("FLAGD_PROXY_PORT", "many")
    with pytest.raises(InvalidOptionError, match=r"^FLAGD_PROXY_PORT is 'many'"):
        settings_of(ProxySettings)
