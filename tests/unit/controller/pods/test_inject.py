"""A pod in, the pod with its evaluator out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.pods import installation
from controller.pods.installation import Options
from controller.pods.pod_injection import inject
from evaluator.cli import parse
from evaluator.settings import load
from tests.worlds.pods import KNOWN, OPTIONS, apply_patch, changes_of, env, inject_pod, pod, refusal_of

GOLDEN = Path(__file__).parent / "golden"
EXAMPLE = Path(__file__).parents[4] / "examples" / "sidecar" / "deployment.yaml"
VARIABLES = {
    "FLAGD_MANAGEMENT_PORT": "8014", "FLAGD_PORT": "8013", "FLAGD_RESOLVER": "rpc", "FLAGD_HOST": "127.0.0.1",
    "FLAGD_SYNC_PORT": "8015", "OFREP_ENDPOINT": "http://127.0.0.1:8016",
}  # fmt: skip


@pytest.mark.parametrize(
    "annotations",
    [
        {installation.ENABLED: None},
        {installation.ENABLED: "false"},
        {installation.ENABLED: "TRUE"},
        {installation.ENABLED: ["true"]},
    ],
)
def test_a_pod_that_does_not_ask_is_left_alone(annotations: dict[str, Any]) -> None:
    assert inject(pod(annotations), "shop", OPTIONS, KNOWN) is None
    assert inject({"spec": {}}, "shop", OPTIONS, KNOWN) is None


def test_the_patch_is_as_it_was_agreed() -> None:
    given = pod(
        initContainers=[{"name": "migrate"}],
        containers=[{"name": "app", "env": [{"name": "A", "value": "1"}]}, {"name": "log"}],
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    assert changes_of(given).patch == json.loads((GOLDEN / "patch.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"initContainers": [{"name": "a"}, {"name": "b", "env": []}]},
        {"containers": [{"name": "app", "env": [{"name": "FLAGD_PORT", "value": "1"}]}, {"name": "b"}]},
        {"volumes": [{"name": "data", "emptyDir": {}}], "initContainers": []},
    ],
)
@pytest.mark.parametrize("sidecar", ["native", "plain"])
def test_the_patch_makes_the_pod_that_is_printed(spec: dict[str, Any], sidecar: str) -> None:
    given = pod({installation.SIDECAR: sidecar}, **spec)
    changes = changes_of(given)
    assert apply_patch(given, changes.patch) == changes.after


def test_all_containers_get_the_variables_in_order_and_keep_what_they_set_themselves() -> None:
    mine = {"name": "FLAGD_RESOLVER", "value": "in-process"}
    found = inject_pod(
        pod(
            containers=[{"name": "app", "env": [mine]}, {"name": "worker"}],
            initContainers=[{"name": "migrate"}],
        )
    )
    sidecar, migrate = found["spec"]["initContainers"]
    app, worker = found["spec"]["containers"]
    assert list(env(worker).items()) == list(env(migrate).items()) == list(VARIABLES.items())
    assert env(app) == {**VARIABLES, "FLAGD_RESOLVER": "in-process"}
    assert next(iter(env(app))) == "FLAGD_RESOLVER"
    assert [each["name"] for each in sidecar["env"]] == ["POD_NAME", "POD_NAMESPACE", "POD_UID", "NODE_NAME"]


def test_only_named_containers_get_the_variables() -> None:
    found = inject_pod(
        pod({installation.CONTAINERS: "worker, migrate"}, containers=[{"name": "app"}, {"name": "worker"}],
            initContainers=[{"name": "migrate"}])
    )  # fmt: skip
    with_variables = [
        each["name"]
        for part in ("initContainers", "containers")
        for each in found["spec"][part]
        if "env" in each
    ]
    assert with_variables == [installation.CONTAINER, "migrate", "worker"]


def test_the_sidecar_starts_first_and_stays() -> None:
    found = inject_pod(pod(initContainers=[{"name": "migrate"}]))
    first = found["spec"]["initContainers"][0]
    assert (first["name"], first["restartPolicy"]) == (installation.CONTAINER, "Always")
    assert first["startupProbe"]["httpGet"]["path"] == "/startz"


def test_a_plain_sidecar_is_a_container_and_init_containers_get_no_variables() -> None:
    found = inject_pod(pod({installation.SIDECAR: "plain"}, initContainers=[{"name": "migrate"}]))
    assert [each["name"] for each in found["spec"]["containers"]] == ["app", installation.CONTAINER]
    assert found["spec"]["initContainers"] == [{"name": "migrate"}]
    assert "restartPolicy" not in found["spec"]["containers"][1]


def test_an_injected_pod_changes_no_more() -> None:
    once = inject_pod(pod(initContainers=[{"name": "migrate"}]))
    assert changes_of(once).patch == []


def test_changes_of_others_to_the_sidecar_stay_and_a_container_added_later_gets_the_variables() -> None:
    once = inject_pod(pod())
    once["spec"]["initContainers"][0]["image"] = "mirror/evaluator:1"
    once["spec"]["containers"].append({"name": "mesh"})
    twice = changes_of(once)
    assert [each["path"] for each in twice.patch] == ["/spec/containers/1/env"]
    assert twice.after["spec"]["initContainers"][0]["image"] == "mirror/evaluator:1"


def test_the_annotation_says_what_was_injected_and_from_where() -> None:
    annotation = json.loads(inject_pod(pod())["metadata"]["annotations"][installation.INJECTED])
    assert annotation == {
        "flagSet": "shop/checkout", "from": "FlagSet/checkout", "revision": "main@sha1:46ead10f53b7",
        "image": "example/evaluator:1", "configuration": annotation["configuration"],
    }  # fmt: skip


def test_the_evaluator_understands_its_command_line_and_is_open_to_its_pod_alone() -> None:
    sidecar = inject_pod(pod({installation.PORT: "9013"}))["spec"]["initContainers"][0]
    found = load(parse(sidecar["args"]), {})
    (source,) = found.settings.sources
    assert found.warnings == ()
    assert (source.uri, source.selector, source.tls) == ("proxy:8015", "shop/checkout", False)
    assert (found.settings.host, found.settings.management_host) == ("127.0.0.1", "0.0.0.0")  # noqa: S104 - probes come from outside
    assert (found.settings.port, found.settings.management_port) == (9013, 8014)
    assert source.bearer_token_file == f"{installation.TOKEN_PATH}/token"


def test_with_an_authority_the_proxy_is_asked_over_tls() -> None:
    found = inject_pod(pod(), Options(proxy_ca="flagstaff-ca"))
    sidecar = found["spec"]["initContainers"][0]
    (source,) = load(parse(sidecar["args"]), {}).settings.sources
    assert source.tls is True
    assert {each["name"] for each in found["spec"]["volumes"]} == {
        each["name"] for each in sidecar["volumeMounts"]
    }


def test_the_token_is_for_the_proxy_alone() -> None:
    volumes = {
        each["name"]: each for each in inject_pod(pod(), Options(proxy_audience="flags"))["spec"]["volumes"]
    }
    (source,) = volumes[installation.TOKEN]["projected"]["sources"]
    assert source["serviceAccountToken"] == {"path": "token", "audience": "flags", "expirationSeconds": 3600}


def test_it_is_the_sidecar_that_is_written_by_hand() -> None:
    documents = yaml.load_all(EXAMPLE.read_text(encoding="utf-8"), yaml.CSafeLoader)
    deployment = next(each for each in documents if each["kind"] == "Deployment")
    by_hand = deployment["spec"]["template"]["spec"]
    spec = inject_pod(pod(), Options(proxy_ca="flagstaff-ca"))["spec"]
    (theirs,), (ours,) = by_hand["initContainers"], spec["initContainers"]
    numbers = [{each["name"]: each["containerPort"] for each in found["ports"]} for found in (theirs, ours)]
    assert numbers[0] == numbers[1]
    listening = [{each for each in found["args"] if "host=" in each} for found in (theirs, ours)]
    assert listening == [{"--host=127.0.0.1", "--management-host=0.0.0.0"}] * 2
    assert theirs["securityContext"].items() <= ours["securityContext"].items()
    for field in ("name", "restartPolicy", "env", "resources"):
        assert theirs[field] == ours[field]
    by_name = [{each["name"]: each for each in found} for found in (by_hand["volumes"], spec["volumes"])]
    assert by_name[0] == by_name[1]
    mounts = [{each["name"]: each for each in found["volumeMounts"]} for found in (theirs, ours)]
    assert mounts[0] == mounts[1]


def test_a_conflict_with_the_pod_is_named_with_what_to_do() -> None:
    messages = [
        refusal_of(pod(containers=[{"name": "app", "ports": [{"containerPort": 8014}]}])),
        refusal_of(pod(containers=[{"name": "app", "livenessProbe": {"httpGet": {"port": 8016}}}])),
        refusal_of(pod(initContainers=[{"name": installation.CONTAINER}])),
        refusal_of(pod(volumes=[{"name": installation.STATE}])),
        refusal_of(pod({installation.CONTAINERS: "ap"})),
    ]
    assert messages == [
        "container app: uses port 8014, which is the evaluator's; give the evaluator another with the "
        "annotation flagstaff.dev/management-port",
        "container app: uses port 8016, which is the evaluator's; give the evaluator another with the "
        "annotation flagstaff.dev/ofrep-port",
        "container flagstaff-evaluator: the pod has one of this name already; remove it, or set "
        "openfeature.dev/enabled to false to keep your own",
        "volume flagstaff-state: the evaluator's has this name; give yours another",
        "annotation flagstaff.dev/containers: the pod has no container 'ap'; it has app",
    ]


def test_a_port_of_another_protocol_is_free() -> None:
    ports = [{"containerPort": 8014, "protocol": "UDP"}]
    assert inject_pod(pod(containers=[{"name": "app", "ports": ports}]))


def test_a_copy_that_asks_for_another_flag_set_is_refused() -> None:
    once = inject_pod(pod())
    once["metadata"]["annotations"][installation.FLAG_SET] = "search"
    assert refusal_of(once) == (
        "annotation flagstaff.dev/injected: the pod's evaluator follows shop/checkout, and the pod now asks "
        "for shop/search; remove the annotation and the container flagstaff-evaluator"
    )


def test_a_copy_without_the_sidecar_gets_one() -> None:
    once = inject_pod(pod())
    assert changes_of({**once, "spec": pod()["spec"]}).patch


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"spec": None}, "spec: is no object"),
        ({"spec": {"containers": []}}, "spec.containers: is empty"),
        ({"spec": {"containers": ["app"]}}, "spec.containers: each must be an object with a name"),
    ],
)
def test_what_is_no_pod_is_refused(given: dict[str, Any], message: str) -> None:
    assert refusal_of({**pod(), **given}).startswith(message)
