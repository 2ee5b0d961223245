"""Pods whose manifests are malformed."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.pods import installation
from controller.pods.installation import Options, PodRefused
from controller.pods.pod_injection import inject
from tests.worlds.pods import Objects, pod, refusal_of

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


def either(well_formed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return ANYTHING | st.lists(ANYTHING | well_formed, max_size=2)


def containers(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"name": st.just("app") | ANYTHING}, optional=fields)


PORT = containers(containerPort=st.just(8014) | ANYTHING, protocol=st.just("TCP") | ANYTHING)
CONTAINER = containers(
    env=either(containers(value=ANYTHING)),
    volumeMounts=either(containers(mountPath=st.just("/var/run/flags") | ANYTHING)),
    ports=either(PORT),
    livenessProbe=ANYTHING | st.fixed_dictionaries({"httpGet": st.fixed_dictionaries({"port": ANYTHING})}),
)
SPEC = st.fixed_dictionaries(
    {"containers": either(CONTAINER) | st.just([{"name": "app"}])},
    optional={
        "initContainers": either(CONTAINER), "volumes": either(containers()), "securityContext": ANYTHING,
        "serviceAccountName": ANYTHING,
    },
)  # fmt: skip
ASKED: list[dict[str, str | None]] = [
    {},
    {installation.SIDECAR: "plain", installation.SOCKET_PATH: "/var/run/flags/flagd.sock"},
    {installation.FLAG_SET: None, installation.IN_PROCESS: "own"},
]
OPTIONS = [Options(proxy_ca="flagstaff-ca", proxy_on_demand=True), Options(proxy_on_demand=True, compat=True)]


@given(SPEC, ANYTHING, st.sampled_from(ASKED), st.sampled_from(OPTIONS))
def test_any_manifest_is_injected_or_refused(
    spec: dict[str, Any], labels: Any, asked: dict[str, str | None], options: Options
) -> None:
    manifest = {**pod(asked), "spec": spec}
    manifest["metadata"]["labels"] = labels
    with contextlib.suppress(PodRefused):
        assert inject(manifest, "shop", options, Objects(own={"selector": "checkout"})) is not None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"volumes": 3},
            "spec.volumes: is no list of objects; write one such as [{name: data, emptyDir: {}}]",
        ),
        ({"volumes": [{"name": []}]}, "spec.volumes: a name is no text; write it as in [{name: data, "),
        ({"initContainers": 5}, "spec.initContainers: is no list; write one such as [{name: app, image: "),
        ({"containers": "app"}, "spec.containers: is no list; write one such as [{name: app, image: app:1}]"),
    ],
)
def test_a_field_of_the_wrong_form_is_named_with_what_to_write(spec: dict[str, Any], message: str) -> None:
    assert refusal_of(pod(**spec)).startswith(message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"env": 7}, "env: is no list of objects; write one such as [{name: LOG_LEVEL, value: info}]"),
        ({"env": "abc"}, "env: is no list of objects"),
        ({"env": [{"name": []}]}, "env: a name is no text"),
        ({"ports": 5}, "ports: is no list of objects; write one such as [{name: http, containerPort: 8080}]"),
        ({"volumeMounts": 7}, "volumeMounts: is no list of objects"),
        (
            {"volumeMounts": [{"name": "data", "mountPath": []}]},
            "volumeMounts: a mountPath is no text; write it as in [{name: data, mountPath: /data}]",
        ),
    ],
)
@pytest.mark.parametrize("part", ["containers", "initContainers"])
def test_and_so_is_one_of_a_container(part: str, fields: dict[str, Any], message: str) -> None:
    spec: dict[str, Any] = {part: [{"name": "app", **fields}]}
    assert refusal_of(pod(**spec)).startswith(f"container app: {message}")


def test_an_annotation_whose_name_is_no_string_is_refused() -> None:
    manifest = pod()
    manifest["metadata"]["annotations"][5] = "a"
    assert refusal_of(manifest) == "annotation 5: is no string; put it in quotes"
