"""FeatureFlagSources and InProcessConfigurations of another namespace, and variables that load code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.pods import installation
from tests.worlds.pods import OPTIONS, Granted, Objects, changes_of, env, inject_pod, pod, refusal_of

SOURCES = [{"source": "https://theirs", "provider": "http"}]
COMPAT = replace(OPTIONS, compat=True)


def pod_naming(annotation: str, *named: str) -> dict[str, Any]:
    return pod({installation.FLAG_SET: None, annotation: ",".join(named)})


def variable(name: str, **rest: Any) -> dict[str, Any]:
    return {"envVars": [{"name": name, **rest}]}


REFERENCES = ("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef", "fileKeyRef")
REFUSED: list[tuple[dict[str, Any], str]] = [
    *((variable("A", valueFrom={kind: {"name": "s"}}), "envVars[0].valueFrom reads") for kind in REFERENCES),
    ({"envVarPrefix": "LD", **variable("PRELOAD", value="/x.so")}, "envVarPrefix: 'LD' is another"),
    ({"envVarPrefix": " "}, "envVarPrefix: ' ' is another"),
    ({"envVarPrefix": "FLAGDX"}, "envVarPrefix: 'FLAGDX' is another"),
    (variable("HOST", value="evil.example"), "FLAGD_HOST says where the application sends"),
    ({"envVarPrefix": "FLAGD_SOCKET", **variable("PATH", value="/x")}, "FLAGD_SOCKET_PATH says where"),
    (variable("a=b", value="x"), "sets 'FLAGD_a=b'"),
    ({"socketPath": "/usr/lib/flagd/flagd.sock"}, "socketPath: '/usr/lib/flagd/flagd.sock' is outside"),
    ({"socketPath": "/var/run/../lib/x.sock"}, "socketPath:"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
@pytest.mark.parametrize("annotation", [installation.SOURCES, installation.IN_PROCESS])
def test_a_foreign_object_that_reads_or_redirects_the_pod_is_refused(
    annotation: str, fields: dict[str, Any], message: str
) -> None:
    spec = {**fields, **({"sources": SOURCES} if annotation == installation.SOURCES else {"selector": "a"})}
    said = refusal_of(pod_naming(annotation, "other/s"), Granted(s=spec))
    assert " other/s: " in said
    assert message in said
    assert said.endswith("which an object of another namespace may not; write one in shop")


def test_a_foreign_source_names_no_secret_of_the_pods_namespace() -> None:
    theirs = {**SOURCES[0], "secretRef": {"name": "mine"}}
    said = refusal_of(pod_naming(installation.SOURCES, "other/s"), Granted(s={"sources": [theirs]}))
    assert said.startswith("FeatureFlagSource other/s: sources[0].secretRef names a Secret of shop")


@pytest.mark.parametrize("options", [OPTIONS, COMPAT])
def test_plain_variables_of_a_foreign_source_reach_the_application_unexpanded(options: Any) -> None:
    spec = {"sources": SOURCES, "envVars": [{"name": "CACHE", "value": "$(DB_PASSWORD)$HOME"}]}
    found = inject_pod(pod_naming(installation.SOURCES, "other/s"), options, Granted(s=spec))["spec"]
    assert env(found["containers"][0])["FLAGD_CACHE"] == "$$(DB_PASSWORD)$$HOME"
    assert "FLAGD_CACHE" not in {each["name"] for each in found["initContainers"][0]["env"]}


def test_a_prefix_of_the_pods_own_source_does_not_rename_variables_of_a_foreign_one() -> None:
    theirs = {"sources": SOURCES, "envVars": [{"name": "PRELOAD", "value": "/x.so"}]}
    known = Granted(own={"sources": SOURCES, "envVarPrefix": "LD"}, s=theirs)
    found = inject_pod(pod_naming(installation.SOURCES, "own", "other/s"), OPTIONS, known)
    names = env(found["spec"]["containers"][0])
    assert "FLAGD_PRELOAD" in names
    assert "LD_PRELOAD" not in names


def test_a_foreign_source_gives_no_credentials_to_the_evaluator() -> None:
    spec = {"sources": SOURCES, "envVars": [{"name": "AWS_ENDPOINT_URL", "value": "https://evil.example"}]}
    found = inject_pod(pod_naming(installation.SOURCES, "other/s"), OPTIONS, Granted(s=spec))["spec"]
    names = {each["name"] for each in found["initContainers"][0]["env"] + found["containers"][0]["env"]}
    assert not {each for each in names if each.startswith("AWS")}


@pytest.mark.parametrize("options", [OPTIONS, COMPAT])
@pytest.mark.parametrize(
    "fields",
    [
        {"sources": [{"source": "https://x?$(DB_PASSWORD)", "provider": "http"}]},
        {"sources": [{"source": "x:1", "provider": "grpc", "selector": "$(A)", "providerID": "$(P)"}]},
        {"sources": SOURCES, "cors": ["$(DB_PASSWORD)"]},
        {"sources": SOURCES, "contextValues": {"$(A)": "$(DB_PASSWORD)"}},
        {"sources": SOURCES, "headerToContextMappings": {"X-$(A)": "$(DB_PASSWORD)"}},
        {"sources": SOURCES, "otelCollectorUri": "$(DB_PASSWORD).example:4317"},
        {"sources": SOURCES, "evaluator": "$(DB_PASSWORD)"},
    ],
)
def test_no_argument_is_expanded_by_the_kubelet(fields: dict[str, Any], options: Any) -> None:
    found = changes_of(pod_naming(installation.SOURCES, "s"), options, Objects(s=fields)).after["spec"]
    texts = [*found["initContainers"][0]["args"], *env(found["containers"][0]).values()]
    assert all("$" not in each.replace("$$", "") for each in texts)


@pytest.mark.parametrize(("prefix", "name"), [("LD", "PRELOAD"), (" ", "PYTHONPATH"), (" ", "BASH_ENV")])
@pytest.mark.parametrize("annotation", [installation.SOURCES, installation.IN_PROCESS])
def test_a_variable_by_which_programs_load_code_is_refused(annotation: str, prefix: str, name: str) -> None:
    spec = {
        "envVarPrefix": prefix,
        "envVars": [{"name": name, "value": "/x"}],
        "sources": SOURCES,
        "selector": "a",
    }
    del spec["selector" if annotation == installation.SOURCES else "sources"]
    said = refusal_of(pod_naming(annotation, "s"), Objects(s=spec))
    assert "has programs load code; rename it" in said
