"""Flags in files: what a pod gets where a FeatureFlagSource has the provider `file`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from controller.pods import installation
from controller.pods.flag_file import FlagFile, files_of_pod
from evaluator.cli import parse
from evaluator.settings import load
from tests.unit.controller.pods.test_source_settings import pod_naming
from tests.worlds.pods import OPTIONS, Objects, inject_pod, pod

FILES = replace(OPTIONS, flag_files=True)
PATH = "/etc/flagd/shop_checkout/shop_checkout.flagd.json"


def inject_file(
    *sources: dict[str, Any], compat: bool = False, labels: dict[str, str] | None = None
) -> dict[str, Any]:
    given = pod_naming("s")
    if labels is not None:
        given["metadata"]["labels"] = labels
    known = Objects(s={"sources": [*sources]})
    return inject_pod(given, replace(FILES, compat=compat), known)


def file(name: str = "checkout") -> dict[str, Any]:
    return {"source": name, "provider": "file"}


def words(found: dict[str, Any]) -> list[str]:
    given: list[str] = found["spec"]["initContainers"][0]["args"]
    return given


@pytest.mark.parametrize("compat", [False, True])
def test_the_config_map_has_the_operators_names_and_is_mounted_whole(compat: bool) -> None:
    found = inject_file(file(), file("shop/base"), file(), compat=compat)
    more = {} if compat else {"optional": True}
    volumes = [each for each in found["spec"]["volumes"] if "configMap" in each]
    assert volumes == [
        {"name": "flagstaff-file-0", "configMap": {"name": "checkout", **more}},
        {"name": "flagstaff-file-1", "configMap": {"name": "base", **more}},
    ]
    mounts = found["spec"]["initContainers"][0]["volumeMounts"]
    assert mounts[-2:] == [
        {"name": "flagstaff-file-0", "mountPath": "/etc/flagd/shop_checkout", "readOnly": True},
        {"name": "flagstaff-file-1", "mountPath": "/etc/flagd/shop_base", "readOnly": True},
    ]
    assert "volumeMounts" not in found["spec"]["containers"][0]


@pytest.mark.parametrize("compat", [False, True])
def test_flagd_and_ours_read_the_file(compat: bool) -> None:
    given = words(inject_file(file(), compat=compat))
    found = load(parse(given), {"POD_NAMESPACE": "shop"}).settings
    assert [(each.provider.value, each.uri) for each in found.sources] == [("file", PATH)]
    assert json.loads(given[given.index("--sources") + 1] if compat else given[1].partition("=")[2]) == [
        {"uri": PATH, "provider": "file"}
    ]


@pytest.mark.parametrize(
    ("sources", "selectors"),
    [
        ([file()], ["shop/checkout"]),
        ([file(), {"source": "base"}], ["shop/checkout"]),
        ([file(), {"source": "flags"}, file("base")], ["shop/checkout", "shop/base"]),
        ([file(), file("base"), file()], []),
    ],
)
def test_the_proxy_learns_what_each_file_serves(sources: list[dict[str, Any]], selectors: list[str]) -> None:
    receipts = load(parse(words(inject_file(*sources))), {}).settings.receipts_to
    assert [each.selector for each in receipts] == selectors


@pytest.mark.parametrize("labels", [None, {"app": "checkout"}])
def test_the_controller_finds_the_pod(labels: dict[str, str] | None) -> None:
    meta = inject_file(file(), file("base"), labels=labels)["metadata"]
    assert meta["labels"] == {**(labels or {}), "flagstaff.dev/flag-files": "true"}
    assert files_of_pod({**meta, "namespace": "shop"}) == (
        FlagFile("shop", "checkout"),
        FlagFile("shop", "base"),
    )


def test_a_pod_without_files_is_not_marked() -> None:
    assert "labels" not in inject_file({"source": "checkout"})["metadata"]
    assert files_of_pod({"namespace": "shop"}) == ()


@pytest.mark.parametrize(
    ("source", "asks"),
    [({"source": "a"}, True), (file(), True), ({"source": "https://flags", "provider": "http"}, False)],
)
def test_pods_that_ask_a_proxy_on_demand_are_marked(source: dict[str, Any], asks: bool) -> None:
    """OpenFeature Operator made its proxy for sources that name it themselves alone: with flagd-proxy as the
    default of the object, its pods were refused for ever.
    """
    options = replace(FILES, proxy_on_demand=True)
    found = inject_pod(pod_naming("s"), options, Objects(s={"sources": [source]}))
    assert ("flagstaff.dev/proxied" in found["metadata"].get("labels", {})) is asks


@pytest.mark.parametrize(
    ("spec", "asks"), [({"selector": "checkout"}, True), ({"host": "flags.example"}, False)]
)
def test_so_are_those_of_providers_that_evaluate_by_themselves(spec: dict[str, Any], asks: bool) -> None:
    given = pod({installation.FLAG_SET: None, installation.IN_PROCESS: "s"})
    found = inject_pod(given, replace(OPTIONS, proxy_on_demand=True), Objects(s=spec))
    assert ("labels" in found["metadata"]) is asks


@pytest.mark.parametrize(("volume", "there"), [("kube-api-access-x2b4z", True), ("mine", False)])
def test_the_evaluator_has_the_mount_that_the_api_server_would_add(volume: str, there: bool) -> None:
    given = pod_naming("s")
    mount = {"name": volume, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    given["spec"]["containers"][0]["volumeMounts"] = [mount]
    found = inject_pod(given, FILES, Objects(s={"sources": [{"source": "checkout"}]}))
    assert (found["spec"]["initContainers"][0]["volumeMounts"][-1] == mount) is there
