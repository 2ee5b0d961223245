"""`flagstaff lint -f` judges as the API server does where unknown fields are errors."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from controller.cli.manifests import judge, read_manifests
from tests.cluster.api import Api, Refused
from tests.cluster.plugin import namespace_on
from tests.cluster.test_kinds import (
    ALERT,
    GRANT,
    HOOK,
    OVERRIDE,
    POLICY,
    PROVIDER,
    REFUSED,
    ROLLOUT,
    SET,
    SHARD,
    SOURCE,
    TEMPLATE,
    body,
    configuration_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane


@pytest.fixture(scope="module")
def place(cluster: Plane) -> Iterator[tuple[Api, str]]:
    """The API server, and a namespace in which nothing is left behind."""
    with namespace_on(cluster) as name:
        yield Api(cluster), name


def server_takes(place: tuple[Api, str], text: str) -> bool:
    api, namespace = place
    head = yaml.load(text, yaml.CSafeLoader)
    plural = re.sub("y$", "ie", head["kind"].lower()) + "s"
    path = f"/apis/{head['apiVersion']}/namespaces/{namespace}/{plural}"
    try:
        api.ask("POST", f"{path}?fieldValidation=Strict&dryRun=All", text.encode(), "application/yaml")
    except Refused:
        return False
    return True


def lint_takes(tmp_path: Path, text: str) -> bool:
    (tmp_path / "x.yaml").write_text(text)
    return not judge(read_manifests([str(tmp_path / "x.yaml")])).problems


def source(spec: str, metadata: str = "name: x") -> str:
    return (
        f"apiVersion: flagstaff.dev/v1beta1\nkind: FlagSource\nmetadata: {{{metadata}}}\nspec: {{{spec}}}\n"
    )


def operators(kind: str, spec: str, version: str = "v1beta1") -> str:
    return f"apiVersion: core.openfeature.dev/{version}\nkind: {kind}\nmetadata: {{name: x}}\nspec: {spec}\n"


GIT: Final = "git: {url: https://h/x}"
FILLED: Final = f"interval: 1m, {GIT}"
FLAGS: Final[dict[str, Any]] = {"flags": {"a": {"state": "ENABLED", "variants": {"on": True}}}}
SAME: Final = {
    **{f"{kind} as documented": body(kind, spec) for kind, spec in (
        ("FlagSource", SOURCE), ("FlagSet", SET), ("FlagReceiver", HOOK), ("FlagProvider", PROVIDER),
        ("FlagAlert", ALERT), ("FlagGrant", GRANT), ("FlagShard", SHARD), ("EvaluatorUpgrade", {}),
        ("FlagOverride", OVERRIDE), ("FlagRollout", ROLLOUT), ("MetricTemplate", TEMPLATE),
        ("FlagPolicy", POLICY),
    )},
    **{f"refused for {name}": body(kind, spec) for name, (kind, spec, _) in REFUSED.items()},
    **{
        f"flags in {version}, {form}": configuration_of({form: FLAGS}, version)
        for version in ("v1alpha1", "v1alpha2", "v1beta1")
        for form in ("flagSpec", "featureFlagSpec", "sources")
    },
    "a text of flags": configuration_of({"featureFlagSpec": json.dumps(FLAGS)}, "v1alpha1"),
    "a FeatureFlag": configuration_of({"flagSpec": FLAGS}, kind="FeatureFlag"),
    "a list of flags": configuration_of({"flagSpec": {"flags": []}}, kind="FeatureFlag"),
    "a number as interval": source(f"interval: 60, {GIT}"),
    "a typo": source("interval: 1m, git: {url: https://h/x, ref: {brnach: x}}"),
    "a typo at the top": source(FILLED).replace("spec", "sepc"),
    "more at the top": source(FILLED) + "data: {}\n",
    "a typo in metadata": source(FILLED, "name: x, lables: {}"),
    "a typo in status": source(FILLED) + "status: {redy: true}\n",
    "any status": source(FILLED) + "status: {observedGeneration: x}\n",
    "yes": source("interval: 1m, git: {url: https://h/x, recurseSubmodules: yes}"),
    "y": source("interval: 1m, git: {url: https://h/x, ref: {branch: y}}"),
    "quoted yes": source('interval: 1m, git: {url: https://h/x, recurseSubmodules: "yes"}'),
    "a version like a number": source("interval: 1m, git: {url: https://h/x, ref: {semver: 1.10}}"),
    "an annotation like a time": source(FILLED, "name: x, annotations: {a: 12:30}"),
    "a branch like a date": source("interval: 1m, git: {url: https://h/x, ref: {branch: 2026-01-01}}"),
    "a branch like a power": source("interval: 1m, git: {url: https://h/x, ref: {branch: 1e3}}"),
    "a branch like null": source("interval: 1m, git: {url: https://h/x, ref: {branch: ~}}"),
    "a field twice": source(f"interval: 1m, interval: 2m, {GIT}"),
    "null for a default": source(f"timeout: null, {FILLED}"),
    "null without a default": source(f"include: null, {FILLED}"),
    "null for a required field": source(f"interval: null, {GIT}"),
    "null in metadata": source(FILLED, "name: x, labels: null"),
    "null as name": source(FILLED, "name: null"),
    "null for a value by name": operators(
        "FeatureFlagSource", "{sources: [{source: x}], contextValues: {a: null}}"
    ),
    "null for a list's item": source(f"include: [null], {FILLED}"),
    "a name in capitals": source(FILLED, "name: Upper_Case"),
    "a name with a dot": source(FILLED, "name: a.b"),
    "a name with two dots": source(FILLED, "name: a..b"),
    "a name that ends in a dash": source(FILLED, "name: a-"),
    "a long name": source(FILLED, f"name: {'x' * 253}"),
    "too long a name": source(FILLED, f"name: {'x' * 254}"),
    "a number as name": source(FILLED, "name: 12"),
    "no name": source(FILLED, ""),
    "a generated name": source(FILLED, "generateName: x-"),
    "a label that is a boolean": source(FILLED, "name: x, labels: {a: true}"),
    "a label with a space": source(FILLED, "name: x, labels: {a: b c}"),
    "an empty label": source(FILLED, "name: x, labels: {a: ''}"),
    "a label's key with a space": source(FILLED, "name: x, labels: {a b: c}"),
    "a label's key with a prefix": source(FILLED, "name: x, labels: {example.com/a_b: c}"),
    "a label's key with two": source(FILLED, "name: x, labels: {example.com/a/b: c}"),
    "a boolean as annotation": source(FILLED, "name: x, annotations: {a: true}"),
    "a number as annotation's key": source(FILLED, "name: x, annotations: {1: a}"),
    "a long duration": source(f"interval: 1h30m5.5s, {GIT}"),
    "a float for a whole number": operators("Flagd", "{featureFlagSource: x, replicas: 2.0}"),
    "half a replica": operators("Flagd", "{featureFlagSource: x, replicas: 2.5}"),
    "too many replicas": operators("Flagd", "{featureFlagSource: x, replicas: 3000000000}"),
    "an empty host": operators("Flagd", "{featureFlagSource: x, ingress: {hosts: [a, '']}}"),
    "no hosts": operators("Flagd", "{featureFlagSource: x, ingress: {enabled: false}}"),
    "a field of older versions": operators("FeatureFlagSource", "{sources: [{source: x}], tag: v1}"),
    "any port": operators("FeatureFlagSource", "{sources: [{source: x}], port: 8013}"),
    "no cache": operators("InProcessConfiguration", "{cache: none}"),
    "a name for any FlagSet": source("sourceRef: {kind: FlagSource, name: x}", f"name: {'x' * 64}").replace(
        "FlagSource\nm", "FlagSet\nm"
    ),
    "an unknown kind": source(FILLED).replace("FlagSource", "FlagSorce"),
    "an unknown version": source(FILLED).replace("v1beta1", "v1"),
    "another's group": operators("FlagSet", "{}"),
}  # fmt: skip


@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_lint_and_the_api_server_come_to_the_same_verdict(
    place: tuple[Api, str], tmp_path: Path, text: str
) -> None:
    assert lint_takes(tmp_path, text) == server_takes(place, text)
