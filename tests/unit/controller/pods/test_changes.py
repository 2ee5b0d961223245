"""What is recorded of a pod's evaluator, and when it is another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from controller.pods import installation
from controller.pods.evaluator_container import Injected, read_injected, read_record
from controller.pods.installation import FlagSetFound, PodRefused
from controller.pods.pod_injection import record_now
from tests.worlds.pods import KNOWN, OPTIONS, Objects, inject_pod, pod

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.pods.installation import Known, Options

SOURCED: dict[str, str | None] = {installation.FLAG_SET: None, installation.SOURCES: "s0"}
DIRECT: dict[str, str | None] = {installation.FLAG_SET: None, installation.DIRECT_SET: "checkout"}
IN_PROCESS: dict[str, str | None] = {installation.FLAG_SET: None, installation.IN_PROCESS: "s0"}
OLD: list[dict[str, str | None]] = [
    {installation.FLAG_SET: None, installation.OLD_SOURCES: "s0"},
    {installation.FLAG_SET: None, installation.OLD_FLAGS: "checkout, search"},
]


def now(given: Mapping[str, Any], options: Options = OPTIONS, known: Known = KNOWN) -> Injected | None:
    found = record_now(given["metadata"]["annotations"], "shop", options, known)
    return None if found is None else read_injected(found)


def was(given: Mapping[str, Any], options: Options = OPTIONS, known: Known = KNOWN) -> Injected | None:
    made = inject_pod(given, options, known)
    return read_record(made["metadata"]["annotations"][installation.INJECTED])


def test_a_pod_whose_flags_are_in_files_is_due_the_same_after_they_changed() -> None:
    options = replace(OPTIONS, flag_files=True)
    known = Objects(s0={"sources": [{"source": "checkout", "provider": "file"}]})
    made = inject_pod(pod(SOURCED), options, known)
    made["metadata"]["annotations"][installation.FLAGS_CHANGED] = "now"
    assert now(made, options, known) == was(pod(SOURCED), options, known) is not None
    with pytest.raises(PodRefused):
        now(made, OPTIONS, known)


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("asks", [{}, SOURCED, IN_PROCESS, DIRECT, {installation.CONTAINERS: "app"}, *OLD])
def test_what_is_injected_is_what_is_due(asks: Mapping[str, str | None], *, compat: bool) -> None:
    options = replace(OPTIONS, compat=compat)
    known = Objects(s0={"sources": [{"source": "checkout"}], "selector": "checkout"})
    made = inject_pod(pod(asks), options, known)
    assert now(made, options, known) == was(pod(asks), options, known) is not None


@pytest.mark.parametrize(
    "asks",
    [
        {installation.LOG_LEVEL: "debug"},
        {installation.PORT: "9013"},
        {installation.RESOURCES: '{"limits":{"memory":"1Gi"}}'},
        {installation.SIDECAR: "plain"},
        {installation.CONTAINERS: "app"},
        {installation.SOCKET_PATH: "/var/run/flagd/flagd.sock"},
        {installation.STATE_CLAIM: "claim"},
        {installation.FLAG_SET: "other"},
    ],
)  # fmt: skip
def test_whatever_a_pod_asks_for_is_in_its_configuration(asks: Mapping[str, str | None]) -> None:
    one, other = now(pod()), now(pod(asks))
    assert one is not None
    assert other is not None
    assert one.configuration != other.configuration
    assert one.image == other.image == "example/evaluator:1"


def test_another_image_is_the_same_configuration() -> None:
    one, other = now(pod()), now(pod(), replace(OPTIONS, image="example/evaluator:2"))
    assert one is not None
    assert other == one._replace(image="example/evaluator:2")


@pytest.mark.parametrize("asks", [SOURCED, IN_PROCESS])
def test_a_variable_of_the_source_changes_the_configuration(asks: Mapping[str, str | None]) -> None:
    spec = {"sources": [{"source": "checkout"}], "selector": "checkout"}
    more = {**spec, "envVars": [{"name": "A", "value": "1"}]}
    assert now(pod(asks), known=Objects(s0=spec)) != now(pod(asks), known=Objects(s0=more))


def test_another_revision_of_the_flags_is_the_same_injection() -> None:
    class Newer(Objects):
        def flag_set(self, namespace: str, name: str, kinds: Sequence[str] = ()) -> FlagSetFound:
            return replace(super().flag_set(namespace, name, kinds), revision="main@sha1:ffffffffffff")

    assert now(pod(), known=Newer()) == now(pod())


def test_a_pod_that_asks_for_nothing_is_due_nothing() -> None:
    assert now(pod({installation.ENABLED: "false"})) is None


def test_a_pod_that_can_no_longer_be_injected_is_refused() -> None:
    with pytest.raises(PodRefused):
        now(pod({installation.FLAG_SET: "elsewhere/checkout"}))


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"', "7"])
def test_a_record_that_cannot_be_read_is_of_nothing_that_we_inject(text: str) -> None:
    assert read_record(text) == Injected("", "")
    assert read_record(None) is None
