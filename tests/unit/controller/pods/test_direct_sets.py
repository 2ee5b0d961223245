"""Pods of workloads that carry flags, and the transport that a pod chooses."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import pytest

from controller.pods import installation
from controller.pods.installation import NotThere
from tests.worlds.pods import OPTIONS, Objects, env, inject_pod, pod, refusal_of

DIRECT: dict[str, str | None] = {installation.FLAG_SET: None, installation.DIRECT_SET: "checkout"}
SOURCES: dict[str, str | None] = {installation.FLAG_SET: None, installation.SOURCES: "s0"}


class Nothing(Objects):
    """No flag set is there yet."""

    def flag_set(self, namespace: str, name: str, kinds: object = ()) -> NoReturn:
        raise NotThere(f"{kinds} {namespace}/{name}")


def evaluator_of(after: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = after["spec"]["initContainers"][0]
    return container


def selectors(after: dict[str, Any]) -> list[str]:
    text = next(word for word in evaluator_of(after)["args"] if word.startswith("--sources="))
    return [source["selector"] for source in json.loads(text.removeprefix("--sources="))]


def test_flags_of_the_workload_are_followed_though_they_may_come_after_the_pod() -> None:
    after = inject_pod(pod(DIRECT), known=Nothing())
    assert selectors(after) == ["shop/checkout"]
    record = json.loads(after["metadata"]["annotations"][installation.INJECTED])
    assert (record["flagSet"], record["from"]) == ("shop/checkout", "FeatureFlagConfiguration/checkout")


@pytest.mark.parametrize(
    ("asks", "spec"),
    [
        ({installation.FLAG_SET: "base"}, {}),
        ({installation.OLD_FLAGS: "base"}, {}),
        ({installation.SOURCES: "s0"}, {"sources": [{"source": "base"}]}),
    ],
)
def test_flags_of_the_workload_win_over_what_it_names(
    asks: dict[str, str | None], spec: dict[str, Any]
) -> None:
    after = inject_pod(pod({**DIRECT, **asks}), known=Objects(s0=spec))
    # The evaluator gives a flag of the last source that has it.
    assert selectors(after) == ["shop/base", "shop/checkout"]


def test_pod_with_flags_of_its_own_gets_an_evaluator_beside_an_in_process_configuration() -> None:
    after = inject_pod(pod({**DIRECT, installation.IN_PROCESS: "s0"}))
    assert selectors(after) == ["shop/checkout"]


@pytest.mark.parametrize("name", ["pay/checkout", "Checkout", ""])
def test_name_that_admission_would_not_write_is_refused(name: str) -> None:
    assert "no object's name; remove it" in refusal_of(pod({**DIRECT, installation.DIRECT_SET: name}))


def test_pod_that_carries_flags_without_a_workload_is_refused() -> None:
    message = refusal_of(pod({installation.FLAGS: "{}"}))
    assert message.startswith("annotation openfeature.dev/flags: is read where a Deployment,")


def test_pod_of_a_template_with_flags_is_injected() -> None:
    assert selectors(inject_pod(pod({**DIRECT, installation.FLAGS: "{}"}))) == ["shop/checkout"]


@pytest.mark.parametrize(
    ("asks", "setting", "path"),
    [
        ({installation.TRANSPORT: "socket"}, "", "/var/run/flagd/flagd.sock"),
        ({installation.TRANSPORT: "socket"}, "/run/flags/a.sock", "/run/flags/a.sock"),
        (
            {installation.TRANSPORT: "socket", installation.SOCKET_PATH: "/run/own/b.sock"},
            "",
            "/run/own/b.sock",
        ),
        ({installation.TRANSPORT: "port"}, "/run/flags/a.sock", None),
        ({installation.TRANSPORT: "port"}, "", None),
        ({}, "/run/flags/a.sock", "/run/flags/a.sock"),
    ],
)
def test_transport_is_a_socket_or_a_port(asks: dict[str, str | None], setting: str, path: str | None) -> None:
    spec = {"sources": [{"source": "checkout"}], "socketPath": setting}
    after = inject_pod(pod({**SOURCES, **asks}), OPTIONS, Objects(s0=spec))
    assert env(after["spec"]["containers"][0]).get("FLAGD_SOCKET_PATH") == path
    assert any(word.startswith("--socket-path=") for word in evaluator_of(after)["args"]) == bool(path)


@pytest.mark.parametrize(
    ("asks", "message"),
    [
        ({installation.TRANSPORT: "tcp"}, "annotation openfeature.dev/transport: is 'tcp'; write one of"),
        (
            {installation.TRANSPORT: "port", installation.SOCKET_PATH: "/run/own/b.sock"},
            "annotation openfeature.dev/transport: is port, and flagstaff.dev/socket-path names a socket",
        ),
    ],
)
def test_transport_that_cannot_be_is_refused(asks: dict[str, str | None], message: str) -> None:
    assert refusal_of(pod(asks)).startswith(message)
