"""The overlay of shared clusters, against the programs that read what it sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from controller.api.kinds import FLAG_RECEIPT, FLUX_SOURCES, WATCHED
from controller.app.settings.process_settings import (
    AdmissionSettings,
    AuthMode,
    ControllerSettings,
    ProxySettings,
    settings_of,
)
from controller.cli.manifests.manifest_files import read_manifests
from controller.kube.adapters.certificates import PROXY_SECRET

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
OVERLAY: Final = DEPLOY / "multi-tenant"
LEFT_OUT: Final = {
    "proxy-enforce.yaml", "secrets-namespace.yaml", "secrets-everywhere.yaml", "flagd-everywhere.yaml",
    "upgrades-everywhere.yaml", "flag-files.yaml", "flag-readers.yaml", "proxy-on-demand.yaml",
}  # fmt: skip
"""Of deploy/: the overlay has the first as a patch of its own, the second is for namespaces of tenants, and
the others are what it is there to avoid.
"""


def overlay() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((OVERLAY / "kustomization.yaml").read_text(), yaml.CSafeLoader)
    return found


def patched(name: str) -> dict[str, Any]:
    """What a Deployment's pods get beside what their manifest has."""
    patches = [yaml.load(each["patch"], yaml.CSafeLoader) for each in overlay()["patches"]]
    [found] = [each for each in patches if each["metadata"]["name"] == name]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def environment(name: str) -> dict[str, str]:
    [container] = patched(name)["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def quotas(settings: ControllerSettings | ProxySettings) -> list[object]:
    """Every quota."""
    return [getattr(settings, name) for name in type(settings).model_fields if name.startswith("quota")]


def documents(name: str) -> list[dict[str, Any]]:
    return [*yaml.load_all((DEPLOY / name).read_text(), yaml.CSafeLoader)]


def test_it_has_every_manifest_but_those_that_are_left_out() -> None:
    named = {(OVERLAY / each).resolve() for each in overlay()["resources"]}
    assert named == {each for each in DEPLOY.glob("*.yaml") if each.name not in LEFT_OUT}


def test_the_binding_of_a_namespace_gives_what_that_of_the_cluster_gives() -> None:
    [one], [everywhere] = documents("secrets-namespace.yaml"), documents("secrets-everywhere.yaml")
    assert (one["kind"], one["metadata"]) == ("RoleBinding", {"name": "flagstaff-secrets"})
    assert (one["roleRef"], one["subjects"]) == (everywhere["roleRef"], everywhere["subjects"])


@pytest.mark.parametrize("name", ["controller", "admission", "proxy"])
def test_each_patch_meets_a_container(name: str) -> None:
    [deployment] = [each for each in documents(f"{name}.yaml") if each["kind"] == "Deployment"]
    assert deployment["metadata"]["name"] == f"flagstaff-{name}"
    containers = deployment["spec"]["template"]["spec"]["containers"]
    patches = patched(f"flagstaff-{name}")["containers"]
    assert [each["name"] for each in patches] == [each["name"] for each in containers]


def test_the_controller_takes_what_it_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    given = environment("flagstaff-controller")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = settings_of(ControllerSettings)
    assert {
        name.removeprefix("FLAGSTAFF_").lower() for name in given
    } <= ControllerSettings.model_fields.keys()
    assert settings.proxy_certificates
    assert settings.require_secret_hosts
    assert settings.flagd_hosts == settings.flagd_annotations == ()
    assert settings.default_service_account
    assert settings.deny_cluster_hosts
    assert settings.deny_http_sources
    assert settings.deny_cloud_identity
    assert all(quotas(settings))


def test_the_proxy_enforces_with_the_certificate_that_the_controller_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment("flagstaff-proxy").items():
        monkeypatch.setenv(name, value)
    settings = settings_of(ProxySettings)
    assert settings.auth is AuthMode.ENFORCE
    assert all(quotas(settings))
    spec = patched("flagstaff-proxy")
    [mount] = spec["containers"][0]["volumeMounts"]
    [volume] = spec["volumes"]
    assert (mount["name"], volume["secret"]["secretName"]) == (volume["name"], PROXY_SECRET)
    files = {f"{mount['mountPath']}/{each['path']}": each["key"] for each in volume["secret"]["items"]}
    assert files == {settings.tls_cert: "tls.crt", settings.tls_key: "tls.key"}


def test_admission_injects_as_the_controller_does_and_asks_callers_for_a_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = environment("flagstaff-admission")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = settings_of(AdmissionSettings)
    spec = patched("flagstaff-admission")
    [mount], [volume] = spec["containers"][0]["volumeMounts"], spec["volumes"]
    assert mount["name"] == volume["name"]
    assert settings.admission_client_ca == f"{mount['mountPath']}/ca.crt"
    controllers = environment("flagstaff-controller")
    assert {name: controllers.get(name) for name in given if "ADMISSION" not in name} == {
        "FLAGSTAFF_PROXY_CA": settings.proxy_ca
    }


def test_the_patch_by_hand_is_the_same() -> None:
    [by_hand] = documents("proxy-enforce.yaml")
    whole = patched("flagstaff-proxy")
    [container] = whole["containers"]
    container["env"] = [each for each in container["env"] if "QUOTA" not in each["name"]]
    assert by_hand["spec"]["template"]["spec"] == whole


def test_the_controller_has_rights_to_the_names_that_it_uses_and_to_no_others() -> None:
    authority = environment("flagstaff-controller")["FLAGSTAFF_PROXY_CA"]
    granted = {
        (resource, verb, *rule["resourceNames"])
        for each in documents("proxy-certificates.yaml")
        for rule in each.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {
        ("secrets", "get", PROXY_SECRET), ("secrets", "update", PROXY_SECRET),
        ("configmaps", "list", authority), ("configmaps", "patch", authority),
    }  # fmt: skip


def test_a_file_that_is_no_object_is_distinguished_from_manifests() -> None:
    found = read_manifests([str(DEPLOY)])
    skipped = {Path(each.file).relative_to(DEPLOY).as_posix() for each in found if not each.is_object}
    assert skipped == {"proxy-enforce.yaml", "multi-tenant/kustomization.yaml"}


def test_the_webhook_is_asked_about_new_pods_that_ask_alone() -> None:
    """OpenFeature Operator's was asked about updates as well, and added its variables again: labels,
    finalizers and the deletion of an injected pod were refused. It was asked about every pod of the cluster,
    and about dry runs, at which it wrote ConfigMaps.
    """
    documents = yaml.load_all((DEPLOY / "admission.yaml").read_text(), yaml.CSafeLoader)
    found = next(each for each in documents if each["kind"] == "MutatingWebhookConfiguration")
    (webhook,) = found["webhooks"]
    (rule,) = webhook["rules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
    assert "openfeature.dev/enabled" in webhook["matchConditions"][0]["expression"]
    assert (webhook["sideEffects"], webhook["failurePolicy"]) == ("None", "Fail")


def test_the_resource_quota_counts_every_kind_that_a_tenant_may_write() -> None:
    [quota] = documents("multi-tenant/resource-quota.yaml")
    counted = {name.removeprefix("count/") for name in quota["spec"]["hard"]}
    kinds = {f"{each.plural}.{each.group}" for each in WATCHED if each not in (*FLUX_SOURCES, FLAG_RECEIPT)}
    assert counted == kinds
