"""FeatureFlagSources: how several are merged, and what becomes of each field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.pods import installation
from controller.pods.webhooks import answer
from evaluator.cli import parse
from evaluator.settings import load
from tests.worlds.pods import OPTIONS, Objects, changes_of, env, inject_pod, pod, refusal_of


def pod_naming(*named: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return pod({installation.FLAG_SET: None, installation.SOURCES: ", ".join(named), **(annotations or {})})


def spec(source: str = "checkout", **rest: Any) -> dict[str, Any]:
    return {"sources": [{"source": source}], **rest}


def of(source: str = "a", **rest: Any) -> dict[str, Any]:
    return {"sources": [{"source": source, **rest}]}


def inject_sources(*specs: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """The pod that names these, in order."""
    known = Objects(**{f"s{number}": each for number, each in enumerate(specs)})
    return inject_pod(
        pod_naming(*(f"s{n}" for n in range(len(specs))), annotations=annotations), OPTIONS, known
    )


def sidecar(found: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = found["spec"]["initContainers"][0]
    return container


def sources(found: dict[str, Any]) -> list[dict[str, Any]]:
    text = next(each for each in sidecar(found)["args"] if each.startswith("--sources="))
    given: list[dict[str, Any]] = json.loads(text.removeprefix("--sources="))
    return given


def test_flags_of_the_cluster_are_followed_through_the_proxy() -> None:
    found = inject_sources(
        {
            "defaultSyncProvider": "flagd-proxy",
            "sources": [
                {"source": "a"},
                {"source": "shop/b", "provider": "kubernetes"},
                {"source": "core.openfeature.dev/shop/c", "provider": "flagd-proxy"},
            ],
        }
    )
    assert [each["selector"] for each in sources(found)] == ["shop/a", "shop/b", "shop/c"]
    assert {(each["uri"], each["provider"]) for each in sources(found)} == {("proxy:8015", "grpc")}
    annotation = json.loads(found["metadata"]["annotations"][installation.INJECTED])
    assert (annotation["flagSet"], annotation["from"]) == ("shop/a,shop/b,shop/c", "FeatureFlagSource/s0")


def test_other_sources_are_passed_on_with_what_their_provider_uses() -> None:
    web = {"source": "https://flags", "provider": "http", "interval": 5, "tls": True}
    rpc = {
        "source": "flags:8015", "provider": "grpc", "tls": True, "selector": "x", "providerID": "p",
        "interval": 3,
    }  # fmt: skip
    found = inject_sources({"sources": [web, rpc]})
    assert sources(found) == [
        {"uri": "https://flags", "provider": "http", "interval": 5},
        {"uri": "flags:8015", "provider": "grpc", "tls": True, "providerID": "p", "selector": "x"},
    ]
    assert load(parse(sidecar(found)["args"]), {}).warnings == ()


def test_a_token_comes_from_a_secret_as_a_file_and_never_stands_in_arguments() -> None:
    web = {"source": "https://flags", "provider": "http", "secretRef": {"name": "flags-token"}}
    found = inject_sources(spec("checkout"), {"sources": [web]})
    (_, followed) = load(parse(sidecar(found)["args"]), {}).settings.sources
    volume, mount = "flagstaff-source-1", "/var/run/flagstaff/source-1"
    assert followed.bearer_token_file == f"{mount}/token"
    assert {"name": volume, "mountPath": mount, "readOnly": True} in sidecar(found)["volumeMounts"]
    items = [{"key": "token", "path": "token"}]
    secret = {"secretName": "flags-token", "items": items, "optional": True}
    assert {"name": volume, "secret": secret} in found["spec"]["volumes"]
    assert "volumeMounts" not in found["spec"]["containers"][0]


def test_a_token_in_the_open_beside_a_secret_is_left_out_with_a_warning() -> None:
    old = {
        "source": "https://flags",
        "provider": "http",
        "httpSyncBearerToken": "hush",
        "secretRef": {"name": "t"},
    }
    changes = changes_of(pod_naming("s"), OPTIONS, Objects(s={"sources": [old]}))
    assert "hush" not in json.dumps(changes.after)
    assert changes.warnings == (
        "FeatureFlagSource: sources[0]: httpSyncBearerToken is ignored: secretRef has the token; "
        "everyone who may read FeatureFlagSources reads this one, so remove it",
    )


def test_a_later_one_wins_and_what_it_does_not_say_stays() -> None:
    first = spec(
        "a", port=9013, managementPort=9014, logFormat="console", debugLogging=True, cors=["a"],
        contextValues={"x": "1", "y": "1"}, resources={"limits": {"cpu": 1, "memory": "1Gi"}},
    )  # fmt: skip
    second = spec(
        "b", port=9113, debugLogging=False, cors=["b"], logFormat="", managementPort=0,
        contextValues={"y": "2"}, resources={"limits": {"memory": "2Gi"}, "requests": {"cpu": 1}},
    )  # fmt: skip
    found = inject_sources(first, second)
    assert [each["selector"] for each in sources(found)] == ["shop/a", "shop/b"]
    assert sidecar(found)["resources"] == {"limits": {"cpu": 1, "memory": "2Gi"}, "requests": {"cpu": 1}}
    words = sidecar(found)["args"]
    assert {"--port=9113", "--management-port=9014", "--log-format=console", "--log-level=info"} <= set(words)
    assert words[-3:] == ["--context-value=x=1", "--context-value=y=2", "--cors-origin=b"]


def test_an_annotation_wins_over_them() -> None:
    annotations = {installation.PORT: "9213", installation.RESOURCES: "{}", installation.LOG_LEVEL: "error"}
    found = inject_sources(
        spec(port=9013, debugLogging=True, resources={"limits": {}}), annotations=annotations
    )
    assert {"--port=9213", "--log-level=error"} <= set(sidecar(found)["args"])
    assert sidecar(found)["resources"] == {}


def test_variables_come_first_with_their_prefix_and_credentials_are_the_evaluators_alone() -> None:
    first = spec(envVars=[{"name": "A", "value": "1"}, {"name": "B", "value": "1"}], envVarPrefix="MY")
    second = spec(
        envVars=[
            {"name": "AWS_REGION", "value": "x"},
            {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ]
    )
    found = inject_sources(first, second)
    application = found["spec"]["containers"][0]["env"]
    assert [each["name"] for each in application] == [
        "MY_A", "MY_B", "MY_MANAGEMENT_PORT", "MY_PORT", "MY_RESOLVER", "MY_HOST", "MY_SYNC_PORT",
        "OFREP_ENDPOINT",
    ]  # fmt: skip
    assert application[0]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert [each["name"] for each in sidecar(found)["env"][4:]] == ["MY_A", "MY_B", "AWS_REGION"]


def test_a_blank_prefix_is_none() -> None:
    assert "PORT" in env(inject_sources(spec(envVarPrefix=" "))["spec"]["containers"][0])


def test_without_probes_there_are_none() -> None:
    assert not [name for name in sidecar(inject_sources(spec(probesEnabled=False))) if name.endswith("Probe")]
    assert sidecar(inject_sources(spec(probesEnabled=True)))["startupProbe"]


def test_context_reaches_the_evaluator_as_it_is() -> None:
    found = inject_sources(
        spec(contextValues={"price": "$(HOME)"}, headerToContextMappings={"X-Tier": "tier"})
    )
    words = sidecar(found)["args"]
    assert "--context-value=price=$$(HOME)" in words
    settings = load(parse([each.replace("$$", "$") for each in words]), {}).settings
    assert settings.context_values == {"price": "$(HOME)"}
    assert settings.context_from_header == {"x-tier": "tier"}


def test_a_setting_without_effect_is_warned_of() -> None:
    known = Objects(s=spec(syncProviderArgs=["a"], rolloutOnChange=False, otelCollectorUri="x"))
    review = {"request": {"uid": "u", "namespace": "shop", "object": pod_naming("s")}}
    _, reviewed = answer(review, OPTIONS, known)
    assert reviewed["response"]["warnings"] == [
        "FeatureFlagSource: syncProviderArgs is ignored: give each source its fields",
        "FeatureFlagSource: otelCollectorUri is ignored: set OTEL_EXPORTER_OTLP_ENDPOINT in envVars of an "
        "image with the extra otel",
    ]


@pytest.mark.parametrize("annotation", [installation.SOURCES, installation.OLD_SOURCES])
def test_an_injected_pod_keeps_what_it_has_when_the_source_changes(annotation: str) -> None:
    once = inject_pod(pod({installation.FLAG_SET: None, annotation: "s"}), OPTIONS, Objects(s=spec("a")))
    assert changes_of(once, OPTIONS, Objects(s=spec("b", port=9000))).patch == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (spec("other/a"), ": sources[0]: no pod of shop may refer to FeatureFlagConfiguration other/a"),
        (spec("Not a name"), ": sources[0]: 'Not a name' is no object's name"),
        (of(provider="file"), ": provider file: the controller runs without --flag-files"),
        (of("other/a", provider="file"), ": sources[0]: a pod mounts ConfigMaps of its own namespace alone"),
        (of("a" * 250, provider="file"), ": sources[0]: 'shop_aaaa"),
        (of(provider="disk"), ": sources[0]: provider 'disk' is not supported"),
        (of(provider="http", httpSyncBearerToken="x"), ": sources[0]: httpSyncBearerToken"),
        (of(provider="s3", secretRef={"name": "x"}), ": sources[0]: provider s3 sends no token"),
        ({"sources": []}, " s: spec.sources: "),
        (spec(port="many"), " s: spec.port: "),
        (spec(logFormat="xml"), " logFormat: is 'xml'; write one of json, console"),
        (spec(envVars=[{"value": "x"}]), ": envVars: each must have a name"),
    ],
)
def test_an_impossible_spec_is_refused(given: dict[str, Any], message: str) -> None:
    found = refusal_of(pod_naming("s"), Objects(s=given))
    assert found.startswith(f"FeatureFlagSource{message}")
    assert "bearer" not in found


def test_a_port_of_two_servers_is_refused() -> None:
    found = refusal_of(pod_naming("s"), Objects(s=spec(port=8014)))
    taken = "annotation flagstaff.dev/management-port: port 8014 is that of flagstaff.dev/port too"
    assert found.startswith(taken)


def test_names_are_of_the_pods_namespace_and_one_way_is_enough() -> None:
    assert refusal_of(pod_naming("other/s")).startswith(
        "annotation openfeature.dev/featureflagsource: no pod of shop may refer to FeatureFlagSource other/s"
    )
    both = pod({installation.SOURCES: "s"})
    assert refusal_of(both).startswith(
        "annotation flagstaff.dev/flagset: openfeature.dev/featureflagsource names flag sets"
    )
