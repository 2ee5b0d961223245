"""The manifests of deploy/, against the programs that read what they set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from controller.api.kinds import FLAG_RECEIPT, KINDS
from controller.app.settings import (
    AdmissionSettings,
    AuthMode,
    ControllerSettings,
    PageSettings,
    ProxySettings,
    settings_of,
)
from controller.cli.manifests import read_manifests
from controller.kube.adapters import PROXY_SECRET

if TYPE_CHECKING:
    from collections.abc import Mapping

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
COMPONENTS: Final = DEPLOY / "components"
PATCHES: Final = sorted(COMPONENTS.glob("*/patch-*.yaml"))


def overlay_patch(name: str) -> dict[str, Any]:
    """What the overlay gives the pods of a Deployment beside what their manifest has."""
    spec: dict[str, Any] = {"containers": [{"env": []}]}
    overlay = yaml.load((DEPLOY / "multi-tenant/kustomization.yaml").read_text(), yaml.CSafeLoader)
    for component in overlay["components"]:
        file = DEPLOY / "multi-tenant" / component / f"patch-{name.removeprefix('flagstaff-')}.yaml"
        if not file.exists():
            continue
        [patch] = documents(str(file.resolve().relative_to(DEPLOY)))
        pod = patch["spec"]["template"]["spec"]
        [container], [whole] = pod["containers"], spec["containers"]
        whole["env"] += container.get("env", [])
        whole |= {field: value for field, value in container.items() if field != "env"}
        spec |= {field: value for field, value in pod.items() if field != "containers"}
    return spec


def environment(name: str) -> dict[str, str]:
    [container] = overlay_patch(name)["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def quotas(settings: ControllerSettings | ProxySettings) -> list[object]:
    """Every quota."""
    return [getattr(settings, name) for name in type(settings).model_fields if name.startswith("quota")]


def documents(name: str) -> list[dict[str, Any]]:
    return [*yaml.load_all((DEPLOY / name).read_text(), yaml.CSafeLoader)]


def test_each_folder_of_components_has_every_file_of_its_kustomization() -> None:
    for kustomization in DEPLOY.rglob("kustomization.yaml"):
        if kustomization.parent.parent != COMPONENTS and kustomization.parent != DEPLOY / "base":
            continue
        content = yaml.load(kustomization.read_text(), yaml.CSafeLoader)
        named = {*content.get("resources", ()), *(patch["path"] for patch in content.get("patches", ()))}
        assert named == {file.name for file in kustomization.parent.iterdir()} - {"kustomization.yaml"}


def test_the_binding_of_a_namespace_gives_what_that_of_the_cluster_gives() -> None:
    [one], [everywhere] = (
        documents("namespaces/secrets.yaml"),
        documents("components/secrets-everywhere/binding.yaml"),
    )
    assert (one["kind"], one["metadata"]) == ("RoleBinding", {"name": "flagstaff-secrets"})
    assert (one["roleRef"], one["subjects"]) == (everywhere["roleRef"], everywhere["subjects"])


MANIFESTS: Final = {
    "controller": "base/controller.yaml",
    "admission": "components/admission/admission.yaml",
    "proxy": "components/proxy/proxy.yaml",
    "page": "components/page/page.yaml",
}


def deployment(name: str) -> dict[str, Any]:
    [found] = [document for document in documents(MANIFESTS[name]) if document["kind"] == "Deployment"]
    return found


@pytest.mark.parametrize("file", PATCHES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_each_patch_meets_a_deployment_and_its_container(file: Path) -> None:
    name = file.stem.removeprefix("patch-")
    [patch] = documents(str(file.relative_to(DEPLOY)))
    assert patch["metadata"]["name"] == deployment(name)["metadata"]["name"] == f"flagstaff-{name}"
    containers = deployment(name)["spec"]["template"]["spec"]["containers"]
    known = {container["name"] for container in containers}
    assert {
        container["name"] for container in patch["spec"]["template"]["spec"].get("containers", ())
    } <= known


PROGRAMS: Final[Mapping[str, type[ControllerSettings | AdmissionSettings | PageSettings | ProxySettings]]] = {
    "controller": ControllerSettings,
    "admission": AdmissionSettings,
    "proxy": ProxySettings,
    "page": PageSettings,
}


@pytest.mark.parametrize("file", PATCHES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_each_variable_of_a_patch_is_a_setting_of_the_program(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = PROGRAMS[file.stem.removeprefix("patch-")]
    [patch] = documents(str(file.relative_to(DEPLOY)))
    for container in patch["spec"]["template"]["spec"].get("containers", ()):
        for variable in container.get("env", ()):
            monkeypatch.setenv(variable["name"], variable["value"])
            assert variable["name"].removeprefix("FLAGSTAFF_").lower() in settings.model_fields
    settings_of(settings)


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
    spec = overlay_patch("flagstaff-proxy")
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
    spec = overlay_patch("flagstaff-admission")
    [mount], [volume] = spec["containers"][0]["volumeMounts"], spec["volumes"]
    assert mount["name"] == volume["name"]
    assert settings.admission_client_ca == f"{mount['mountPath']}/ca.crt"
    controllers = environment("flagstaff-controller")
    assert {name: controllers.get(name) for name in given if "ADMISSION" not in name} == {
        "FLAGSTAFF_PROXY_CA": settings.proxy_ca
    }


def test_the_controller_has_rights_to_the_names_that_it_uses_and_to_no_others() -> None:
    authority = environment("flagstaff-controller")["FLAGSTAFF_PROXY_CA"]
    granted = {
        (resource, verb, *rule["resourceNames"])
        for each in documents("components/proxy-tls/certificates.yaml")
        for rule in each.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {
        ("secrets", "get", PROXY_SECRET), ("secrets", "update", PROXY_SECRET),
        ("configmaps", "list", authority), ("configmaps", "patch", authority),
    }  # fmt: skip


def test_a_file_that_is_no_object_is_distinguished_from_manifests() -> None:
    found = read_manifests([str(DEPLOY / name) for name in ("base", "components")])
    skipped = {Path(each.file).relative_to(DEPLOY).as_posix() for each in found if not each.is_object}
    assert all(file.endswith("kustomization.yaml") for file in skipped)


def test_the_webhook_is_asked_about_new_pods_that_ask_alone() -> None:
    """OpenFeature Operator's was asked about updates as well, and added its variables again: labels,
    finalizers and the deletion of an injected pod were refused. It was asked about every pod of the cluster,
    and about dry runs, at which it wrote ConfigMaps.
    """
    documents = yaml.load_all((DEPLOY / MANIFESTS["admission"]).read_text(), yaml.CSafeLoader)
    found = next(each for each in documents if each["kind"] == "MutatingWebhookConfiguration")
    [webhook] = [hook for hook in found["webhooks"] if hook["name"] == "inject.flagstaff.dev"]
    (rule,) = webhook["rules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
    assert "openfeature.dev/enabled" in webhook["matchConditions"][0]["expression"]
    assert (webhook["sideEffects"], webhook["failurePolicy"]) == ("None", "Fail")


def test_the_resource_quota_counts_every_kind_that_a_tenant_may_write() -> None:
    [quota] = documents("namespaces/resource-quota.yaml")
    counted = {name.removeprefix("count/") for name in quota["spec"]["hard"]}
    kinds = {f"{each.plural}.{each.group}" for each in KINDS if each != FLAG_RECEIPT}
    assert counted == kinds
