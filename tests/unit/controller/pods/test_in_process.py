"""InProcessConfigurations: variables named as OpenFeature Operator's, for our proxy unless one is named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from controller.pods import installation
from controller.pods.installation import Options, PodRefused
from controller.pods.pod_injection import inject
from tests.worlds.pods import OPTIONS, Objects, changes_of, env, pod

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPAT = replace(OPTIONS, compat=True)


def pod_naming(*named: str, **spec: Any) -> dict[str, Any]:
    return pod({installation.FLAG_SET: None, installation.IN_PROCESS: ", ".join(named)}, **spec)


def inject_sources(*specs: dict[str, Any], options: Options = OPTIONS) -> dict[str, Any]:
    known = Objects(**{f"s{number}": each for number, each in enumerate(specs)})
    return changes_of(pod_naming(*(f"s{number}" for number in range(len(specs)))), options, known).after


def test_a_provider_finds_its_flag_set_at_the_proxy() -> None:
    found = inject_sources({"selector": "checkout", "host": "localhost", "port": 8015})
    assert "initContainers" not in found["spec"]
    assert env(found["spec"]["containers"][0]) == {
        "FLAGD_HOST": "proxy", "FLAGD_PORT": "8015", "FLAGD_TLS": "false", "FLAGD_CACHE": "lru",
        "FLAGD_MAX_CACHE_SIZE": "1000", "FLAGD_RESOLVER": "in-process",
        "FLAGD_SOURCE_SELECTOR": "shop/checkout",
    }  # fmt: skip
    annotation = json.loads(found["metadata"]["annotations"][installation.INJECTED])
    assert annotation == {"from": "InProcessConfiguration/s0", "configuration": annotation["configuration"]}


@pytest.mark.parametrize(
    "empty", [{"socketPath": ""}, {"offlineFlagSourcePath": ""}, {"selector": ""}, {"envVars": []}]
)
def test_an_empty_value_leaves_what_another_configuration_says(empty: dict[str, Any]) -> None:
    said = {
        "socketPath": "/tmp/flagd.sock",
        "offlineFlagSourcePath": "/flags.json",
        "selector": "checkout",
        "envVars": [{"name": "X", "value": "y"}],
    }
    first, both = inject_sources(said), inject_sources(said, empty)
    assert first["spec"]["containers"][0]["env"] == both["spec"]["containers"][0]["env"]


def test_over_tls_the_authority_comes_along() -> None:
    found = inject_sources({"selector": "shop/checkout"}, options=replace(OPTIONS, proxy_ca="flagstaff-ca"))[
        "spec"
    ]
    container = found["containers"][0]
    assert (env(container)["FLAGD_TLS"], env(container)["FLAGD_SERVER_CERT_PATH"]) == (
        "true",
        f"{installation.CA_PATH}/ca.crt",
    )
    assert container["volumeMounts"] == [
        {"name": installation.CA, "mountPath": installation.CA_PATH, "readOnly": True}
    ]
    assert [each["name"] for each in found["volumes"]] == [installation.CA]


def test_a_flag_set_of_another_namespace_is_followed_where_a_grant_lets_it() -> None:
    class Granting(Objects):
        def refer(
            self, reader: str, kinds: Sequence[str], namespace: str, name: str
        ) -> tuple[tuple[str, ...], str]:
            assert (reader, namespace, name) == ("shop", "other", "checkout")
            return tuple(kinds), "no grant is there"

    changes = changes_of(pod_naming("s"), OPTIONS, Granting(s={"selector": "other/checkout"}))
    variables = env(changes.after["spec"]["containers"][0])
    assert (variables["FLAGD_HOST"], variables["FLAGD_SOURCE_SELECTOR"]) == ("proxy", "other/checkout")
    assert changes.warnings == ("InProcessConfiguration: selector: no grant is there",)


def test_several_are_merged_as_openfeature_operator_merges_them() -> None:
    first = {
        "tls": True, "offlineFlagSourcePath": "my-path", "cacheMaxSize": 11, "envVarPrefix": "my-prefix",
        "envVars": [{"name": "name1", "value": "1"}, {"name": "name2", "value": "2"}],
    }  # fmt: skip
    # As its definition stores it: with defaults.
    second = {
        "envVarPrefix": "my-second-prefix", "host": "my-host", "port": 8015, "tls": False,
        "cacheMaxSize": 1000,
    }  # fmt: skip
    for options in (OPTIONS, COMPAT):
        variables = inject_sources(first, second, options=options)["spec"]["containers"][0]["env"]
        assert [(each["name"].removeprefix("my-second-prefix_"), each["value"]) for each in variables] == [
            ("name2", "2"), ("name1", "1"), ("HOST", "my-host"), ("PORT", "8015"), ("TLS", "true"),
            ("CACHE", "lru"), ("MAX_CACHE_SIZE", "11"), ("RESOLVER", "in-process"),
            ("OFFLINE_FLAG_SOURCE_PATH", "my-path"),
        ]  # fmt: skip


def test_under_compat_nothing_points_at_the_proxy() -> None:
    variables = env(inject_sources({}, options=COMPAT)["spec"]["containers"][0])
    assert (variables["FLAGD_HOST"], variables["FLAGD_PORT"]) == ("localhost", "8015")


def test_a_second_time_changes_nothing_and_feature_flag_sources_win() -> None:
    known = Objects(s0={"selector": "checkout"}, s={"sources": [{"source": "checkout"}]})
    once = changes_of(pod_naming("s0"), OPTIONS, known).after
    assert changes_of(once, OPTIONS, known).patch == []
    both = pod_naming("s0")
    both["metadata"]["annotations"][installation.SOURCES] = "s"
    assert changes_of(both, OPTIONS, known).after["spec"]["initContainers"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "InProcessConfiguration: selector is missing"),
        ({"selector": "other/checkout"}, "InProcessConfiguration: selector: no pod of shop "
         "may refer to FeatureFlagConfiguration other/checkout"),
        ({"selector": "No name"}, "InProcessConfiguration: selector: 'No name' is no object's name"),
        ({"cache": "big"}, "InProcessConfiguration s: spec.cache: "),
    ],
)  # fmt: skip
def test_an_impossible_spec_is_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(PodRefused) as refusal:
        inject(pod_naming("s"), "shop", OPTIONS, Objects(s=spec))
    assert str(refusal.value).startswith(message)


def test_a_container_that_is_not_there_is_named() -> None:
    given = pod_naming("s")
    given["metadata"]["annotations"][installation.CONTAINERS] = "b"
    with pytest.raises(PodRefused, match="the pod has no container 'b'"):
        inject(given, "shop", OPTIONS, Objects(s={"selector": "checkout"}))
