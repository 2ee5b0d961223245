"""OpenFeature Operator's container, as version 0.9.2 makes it of the same objects."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from controller.pods import installation
from controller.pods.installation import FlagSetFound, Options, PodRefused
from controller.pods.pod_injection import inject
from controller.pods.webhooks import UNCHANGED, answer
from evaluator.cli import parse
from evaluator.settings import load
from tests.unit.controller.pods.test_source_settings import pod_naming, spec
from tests.worlds.pods import Objects, changes_of, pod

if TYPE_CHECKING:
    from collections.abc import Sequence

FLAGD = "ghcr.io/open-feature/flagd:v0.15.4"
COMPAT = Options(image=FLAGD, proxy_address="proxy:8015", compat=True)
SECURITY = {
    "capabilities": {"drop": ["ALL"]}, "runAsUser": 65532, "runAsGroup": 65532, "runAsNonRoot": True,
    "privileged": False, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip


def inject_sources(*specs: dict[str, Any], **rest: Any) -> dict[str, Any]:
    known = Objects(**{f"s{number}": each for number, each in enumerate(specs)})
    given = pod_naming(*(f"s{number}" for number in range(len(specs))))
    given["spec"].update(rest)
    return changes_of(given, COMPAT, known).after


def flagd(found: dict[str, Any]) -> dict[str, Any]:
    (container,) = found["spec"]["initContainers"]
    assert isinstance(container, dict)
    return container


def probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": 8014, "scheme": "HTTP"}, "initialDelaySeconds": 5}


def test_the_container_is_the_operators_field_by_field() -> None:
    found = inject_sources(spec("checkout", provider="flagd-proxy"))
    variables = [
        {"name": "FLAGD_MANAGEMENT_PORT", "value": "8014"}, {"name": "FLAGD_PORT", "value": "8013"},
        {"name": "FLAGD_EVALUATOR", "value": "json"}, {"name": "FLAGD_LOG_FORMAT", "value": "json"},
        {"name": "FLAGD_RESOLVER", "value": "rpc"},
    ]  # fmt: skip
    sources = '[{"uri":"proxy:8015","provider":"grpc","selector":"core.openfeature.dev/shop/checkout"}]'
    assert flagd(found) == {
        "name": "flagd", "image": FLAGD, "imagePullPolicy": "Always", "restartPolicy": "Always",
        "args": ["start", "--management-port", "8014", "--port", "8013", "--sources", sources,
                 "--ofrep-port", "8016"],
        "ports": [{"name": "management", "containerPort": 8014}, {"name": "flagd", "containerPort": 8013}],
        "env": variables, "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
        "resources": {"requests": {"cpu": "200m", "memory": "32Mi"},
                      "limits": {"cpu": "500m", "memory": "64Mi"}},
        "securityContext": SECURITY,
    }  # fmt: skip
    assert found["spec"]["containers"][0]["env"] == variables
    assert "volumes" not in found["spec"]
    assert found["metadata"]["annotations"]["openfeature.dev/allowkubernetessync"] == "true"


def test_arguments_are_in_the_operators_order() -> None:
    found = inject_sources(
        spec("a", debugLogging=True, otelCollectorUri="otel:4317", contextValues={"b": "2", "a": "1"},
             headerToContextMappings={"X-Y": "y"}, cors=["*"], ofrepPort=9016)
    )  # fmt: skip
    assert flagd(found)["args"][7:] == [
        "--debug", "--metrics-exporter", "otel", "--otel-collector-uri", "otel:4317",
        "--context-value", "a=1", "--context-value", "b=2", "--context-from-header", "X-Y=y",
        "--cors-origin", "*", "--ofrep-port", "9016",
    ]  # fmt: skip


def test_each_merge_turns_the_variables_round() -> None:
    first = spec(envVars=[{"name": "A", "value": "1"}, {"name": "B", "value": "1"}])
    second = spec(envVars=[{"name": "A", "value": "2"}], envVarPrefix="MY")
    variables = [(each["name"], each["value"]) for each in flagd(inject_sources(first, second))["env"]]
    assert variables[:2] == [("MY_A", "2"), ("MY_B", "1")]
    assert [each["name"] for each in flagd(inject_sources(first))["env"][:2]] == ["FLAGD_B", "FLAGD_A"]


def test_init_containers_get_no_variables_and_only_the_evaluator_gets_credentials() -> None:
    found = inject_sources(spec(envVars=[{"name": "AWS_REGION", "value": "x"}]), containers=[{"name": "app"}])
    assert "AWS_REGION" in {each["name"] for each in flagd(found)["env"]}
    assert "AWS_REGION" not in {each["name"] for each in found["spec"]["containers"][0]["env"]}
    early = changes_of(
        {**pod_naming("s"), "spec": {"initContainers": [{"name": "a"}], "containers": [{"name": "app"}]}},
        COMPAT, Objects(s=spec()),
    ).after  # fmt: skip
    assert "env" not in early["spec"]["initContainers"][1]


def test_a_token_is_written_as_flagd_reads_it_and_warned_of() -> None:
    given = {
        "sources": [{"source": "https://x", "provider": "http", "httpSyncBearerToken": "t", "interval": 5}]
    }
    changes = changes_of(pod_naming("s"), COMPAT, Objects(s=given))
    sources = json.loads(flagd(changes.after)["args"][6])
    assert sources == [{"uri": "https://x", "provider": "http", "authHeader": "Bearer t", "interval": 5}]
    assert changes.warnings[0].startswith(
        "FeatureFlagSource: sources[0]: httpSyncBearerToken stands in the pod's"
    )


def test_a_token_of_a_secret_is_refused_since_stock_flagd_reads_no_file() -> None:
    given = {"sources": [{"source": "https://x", "provider": "http", "secretRef": {"name": "t"}}]}
    with pytest.raises(PodRefused, match="secretRef: the controller runs with --compat"):
        inject(pod_naming("s"), "shop", COMPAT, Objects(s=given))


def test_our_evaluator_takes_the_same_container() -> None:
    container = flagd(inject_sources(spec(), spec(port=9013, envVarPrefix="FLAGD")))
    environ = {each["name"]: each["value"] for each in container["env"]}
    loaded = load(parse(container["args"]), environ)
    assert loaded.settings.port == 9013
    assert [each.selector for each in loaded.settings.sources] == ["core.openfeature.dev/shop/checkout"] * 2


def test_a_socket_is_shared_so_that_it_can_be_used() -> None:
    found = inject_sources(spec(socketPath="/var/run/flagd/flagd.sock"))
    mount = {"name": installation.SOCKET, "mountPath": "/var/run/flagd"}
    assert flagd(found)["volumeMounts"] == found["spec"]["containers"][0]["volumeMounts"] == [mount]
    assert flagd(found)["env"][-1] == {"name": "FLAGD_SOCKET_PATH", "value": "/var/run/flagd/flagd.sock"}


@pytest.mark.parametrize("prefix", ["FLAGD", "MY", ""])
def test_our_evaluator_listens_at_the_socket_whatever_the_prefix_and_lets_every_user_in(prefix: str) -> None:
    found = inject_sources({**spec(socketPath="/var/run/flagd/flagd.sock"), "envVarPrefix": prefix})
    container = flagd(found)
    environ = {each["name"]: each["value"] for each in container["env"]}
    settings = load(parse(container["args"]), environ).settings
    assert (settings.socket_path, settings.socket_mode) == ("/var/run/flagd/flagd.sock", "0666")
    assert ("--socket-path" in container["args"]) == (prefix == "MY")
    assert "FLAGSTAFF_SOCKET_MODE" not in {each["name"] for each in found["spec"]["containers"][0]["env"]}


def test_what_the_operator_lets_pass_is_warned_of() -> None:
    given = pod(containers=[{"name": "app", "ports": [{"containerPort": 8016}]}])
    changes = changes_of(given, COMPAT)
    assert changes.warnings[0].startswith("container app: uses port 8016, which is the evaluator's")
    own = pod(initContainers=[{"name": "flagd", "image": "mine"}])
    outcome, review = answer({"request": {"uid": "u", "namespace": "shop", "object": own}}, COMPAT, Objects())
    assert outcome == UNCHANGED
    assert review["response"]["warnings"] == ["container flagd: the pod brings its own, which stays as it is"]


def test_an_injected_pod_stays_as_it_is() -> None:
    once = inject_sources(spec())
    assert changes_of(once, COMPAT, Objects(s0=spec())).patch == []


@pytest.mark.parametrize("name", [installation.ON_MISSING, installation.STATE_CLAIM, installation.SYNC_PORT])
def test_what_only_our_container_has_is_refused(name: str) -> None:
    with pytest.raises(PodRefused, match=f"annotation {name}: the controller runs with --compat"):
        inject(pod({name: "x"}), "shop", COMPAT, Objects())


READERS = replace(COMPAT, flag_readers=True)


def test_flagd_reads_feature_flags_of_its_namespace_where_it_is_given_the_right() -> None:
    sources = [
        {"source": "checkout", "provider": "kubernetes"},
        {"source": "shop/base"},
        {"source": "proxied", "provider": "flagd-proxy"},
    ]
    given = pod_naming("s")
    given["spec"]["serviceAccountName"] = "till"
    found = changes_of(given, READERS, Objects(s={"sources": sources})).after
    words = flagd(found)["args"]
    assert json.loads(words[words.index("--sources") + 1]) == [
        {"uri": "shop/checkout", "provider": "kubernetes"},
        {"uri": "shop/base", "provider": "kubernetes"},
        {"uri": "proxy:8015", "provider": "grpc", "selector": "core.openfeature.dev/shop/proxied"},
    ]
    meta = found["metadata"]
    assert meta["labels"] == {installation.FLAG_READER: "true"}
    assert (meta["annotations"][installation.FLAG_READER], meta["annotations"][installation.ALLOW_SYNC]) == (
        "till",
        "true",
    )


def test_a_pod_whose_feature_flag_is_not_there_is_refused() -> None:
    class Nothing(Objects):
        def flag_set(self, namespace: str, name: str, kinds: Sequence[str] = ()) -> FlagSetFound:
            assert tuple(kinds) == ("FeatureFlag",)
            raise PodRefused(f"{namespace}/{name}")

    known = Nothing(s=spec("checkout"))
    with pytest.raises(
        PodRefused, match="namespace shop has no FeatureFlag checkout, which flagd reads; create it"
    ):
        inject(pod_naming("s"), "shop", READERS, known)
    assert inject(pod_naming("s"), "shop", COMPAT, known) is not None


def test_without_compat_the_api_server_is_not_read() -> None:
    found = changes_of(pod_naming("s"), replace(READERS, compat=False), Objects(s=spec("checkout"))).after
    assert "labels" not in found["metadata"]
    assert '"provider":"grpc"' in found["spec"]["initContainers"][0]["args"][1]
