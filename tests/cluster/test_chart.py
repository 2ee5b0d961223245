"""The Helm chart: the objects of the kustomize base, and a release on a real API server."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from controller.api.meta import SHARD_KEY
from controller.app.settings import ControllerSettings, settings_of
from evaluator.settings.load import load
from tests.cluster.patience import within
from tests.cluster.plane import run_plane
from tests.helm import program as helm_program
from tests.worlds.objects import flag_set, flag_source, thing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.plane import Plane

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "chart"
USUAL: Final = (
    "delivery",
    "proxy",
    "admission",
    "deletion-protection",
    "near-misses",
    "network-policies",
    "rights-policies",
)
TENANTS: Final = ("proxy", "admission", "proxy-tls", "network-policies", "rights-policies", "multi-tenant")
CHOICES: Final = {
    "usual": USUAL,
    "tenants": TENANTS,
    "controller alone": ("delivery",),
    "with the page": (*USUAL, "page"),
    "one evaluator a node": (*USUAL, "node-evaluator"),
    "highly available": (*USUAL, "proxy-tls", "high-availability", "flux-notifications", "monitoring"),
    "like OpenFeature Operator": (
        *USUAL, "operator-compatible", "flag-readers", "flag-files", "proxy-on-demand",
        "secrets-everywhere", "flagd-everywhere", "upgrades-everywhere",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs Helm with folders of its own. Raises CalledProcessError if Helm fails."""
    program, home = helm_program.program(), tmp_path_factory.mktemp("helm")
    folders = {f"HELM_{name}_HOME": str(home / name) for name in ("CACHE", "CONFIG", "DATA")}

    def run(*words: str, check: bool = True) -> str:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), **folders}
        ended = subprocess.run(
            [program, *words], env=environment, text=True, timeout=120, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT if not check else subprocess.PIPE,
        )  # fmt: skip
        if check and ended.returncode:
            raise AssertionError(f"helm {' '.join(words)}: {ended.stderr}")
        return ended.stdout

    return run


def values(components: tuple[str, ...]) -> str:
    """The value of --set-json for exactly these components."""
    known = yaml.safe_load((CHART / "values.yaml").read_text())["components"]
    return json.dumps({name: name in components for name in known})


Identity = tuple[str, str, str]


def objects(text: str) -> dict[Identity, object]:
    """The objects of a stream of YAML by kind, namespace and name, with their lists sorted."""
    found = {}
    for document in yaml.load_all(text, yaml.CSafeLoader):
        if document is not None and document["kind"] not in ("Namespace", "CustomResourceDefinition"):
            meta = document["metadata"]
            if "helm.sh/hook" not in meta.get("annotations", {}):
                found[document["kind"], meta.get("namespace", ""), meta["name"]] = sort_lists(document)
    return found


def sort_lists(value: object) -> object:
    """`value` with lists whose order has no meaning sorted by their entries."""
    if isinstance(value, dict):
        return {key: sort_lists(part) for key, part in value.items()}
    if isinstance(value, list):
        return sorted((sort_lists(part) for part in value), key=lambda part: json.dumps(part, sort_keys=True))
    return value


def kustomize(cluster: Plane, folder: Path, components: tuple[str, ...]) -> str:
    """What a kustomization with the base and these components says."""
    # Kustomize takes no absolute paths.
    up = "../" * (len(folder.parts) - 1)
    deploy = f"{up}{(ROOT / 'deploy').relative_to('/')}"
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{deploy}/base"],
        "components": [f"{deploy}/components/{name}" for name in components],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
    return cluster.kubectl("kustomize", str(folder))


@pytest.mark.parametrize("components", CHOICES.values(), ids=CHOICES.keys())
def test_the_chart_renders_the_objects_of_the_kustomize_base(
    cluster: Plane, helm: Callable[..., str], tmp_path: Path, components: tuple[str, ...]
) -> None:
    kustomized = objects(kustomize(cluster, tmp_path, components))
    rendered = objects(
        helm(
            "template",
            "flagstaff",
            str(CHART),
            "-n",
            "flagstaff-system",
            "--set-json",
            f"components={values(components)}",
        )
    )
    assert rendered.keys() == kustomized.keys()
    for identity, wanted in kustomized.items():
        assert rendered[identity] == wanted, identity


NODE: Final = (*USUAL, "node-evaluator")
PRIORITY: Final = ("--set", "node-evaluator.pod.priorityClassName=system-node-critical")


@pytest.mark.parametrize("way", ["kustomize", "helm"])
def test_the_evaluator_of_a_node_is_there_before_its_pods_and_after_them(
    cluster: Plane, helm: Callable[..., str], tmp_path: Path, way: str
) -> None:
    if way == "kustomize":
        text = kustomize(cluster, tmp_path, NODE)
    else:
        given = ("--set-json", f"components={values(NODE)}", *PRIORITY)
        text = helm("template", "x", str(CHART), "-n", "flagstaff-system", *given)
    place = ("flagstaff-system", "flagstaff-node-evaluator")
    rendered: dict[Identity, Any] = dict(objects(text))
    spec, service = rendered["DaemonSet", *place]["spec"], rendered["Service", *place]["spec"]
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    # An update: the next one is ready before the last one stops.
    assert spec["updateStrategy"] == {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    # A drain leaves it until the pods are gone: it runs wherever they may, and nothing evicts it before them.
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod.get("priorityClassName") == (None if way == "kustomize" else "system-node-critical")
    options = [argument for argument in container["args"] if argument.startswith("--")]
    split = (option.removeprefix("--").partition("=") for option in options)
    settings = load({name: [value] for name, _, value in split}, {}).settings
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= pause + settings.shutdown_seconds + 10
    # No new connection comes while it waits for those that it has.
    ready, live = container["readinessProbe"], container["livenessProbe"]
    assert ready["periodSeconds"] * ready["failureThreshold"] < pause
    assert live["periodSeconds"] * live["failureThreshold"] >= 60
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "grpc": settings.port, "management": settings.management_port, "sync": settings.sync_port,
        "ofrep": settings.ofrep_port,
    }  # fmt: skip
    assert {ready["httpGet"]["port"], live["httpGet"]["port"]} == {"management"}
    assert service["internalTrafficPolicy"] == "Local"
    assert service["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    assert {port["targetPort"] for port in service["ports"]} == {"grpc", "sync", "ofrep"}
    # What the API server knows of it.
    (tmp_path / "one.yaml").write_text(json.dumps(rendered["DaemonSet", *place]))
    cluster.kubectl("create", "namespace", "flagstaff-system", check=False)
    cluster.kubectl("apply", "--server-side", "--dry-run=server", "-f", str(tmp_path / "one.yaml"))


def test_values_reach_the_deployments(helm: Callable[..., str]) -> None:
    rendered = helm(
        "template", "flags", str(CHART), "-n", "platform",
        "--set", "image.controller.repository=registry.test/c,image.controller.tag=v9,proxy.replicas=5",
        "--set", "controller.settings.source-hosts=git.example.com",
        "--set", "controller.container.resources.limits.memory=2Gi",
        "--set", "imagePullSecrets[0].name=pull,admission.pod.nodeSelector.pool=system",
    )  # fmt: skip
    deployments: dict[str, Any] = {
        name: body
        for (kind, namespace, name), body in objects(rendered).items()
        if kind == "Deployment" and namespace == "platform"
    }
    pods = {name: body["spec"]["template"]["spec"] for name, body in deployments.items()}
    assert "flagstaff-system" not in rendered
    assert deployments["flagstaff-proxy"]["spec"]["replicas"] == 5
    [controller] = pods["flagstaff-controller"]["containers"]
    assert controller["image"] == "registry.test/c:v9"
    assert {"name": "FLAGSTAFF_SOURCE_HOSTS", "value": "git.example.com"} in controller["env"]
    assert controller["resources"]["limits"]["memory"] == "2Gi"
    assert pods["flagstaff-admission"]["nodeSelector"] == {"pool": "system"}
    assert all(pod["imagePullSecrets"] == [{"name": "pull"}] for pod in pods.values())


SHARDED: Final = ("--set", "sharding.shards={shard1,shard2}", "--set", "components.monitoring=true")


def test_each_shard_has_a_deployment_services_and_a_budget_of_its_own(helm: Callable[..., str]) -> None:
    plain = objects(helm("template", "x", str(CHART), "-n", "platform", *SHARDED[2:]))
    rendered: dict[Identity, Any] = dict(
        objects(helm("template", "x", str(CHART), "-n", "platform", *SHARDED))
    )
    assert rendered.keys() - plain.keys() == {
        (kind, "platform", f"flagstaff-{name}-{shard}")
        for shard in ("shard1", "shard2")
        for kind, name in (
            ("Deployment", "controller"), ("PodDisruptionBudget", "controller"),
            ("Service", "artifacts"), ("Service", "receiver"),
        )
    }  # fmt: skip
    changed = [identity for identity in plain if rendered[identity] != plain[identity]]
    assert changed == [("Deployment", "platform", "flagstaff-controller")]
    for shard in ("", "shard1", "shard2"):
        name = f"flagstaff-controller-{shard}" if shard else "flagstaff-controller"
        pods = {"app.kubernetes.io/name": name}
        deployment = rendered["Deployment", "platform", name]["spec"]
        labels = deployment["template"]["metadata"]["labels"]
        assert deployment["selector"]["matchLabels"] == pods
        # The network policy and the monitors know them by these.
        assert labels == {
            **pods, "app.kubernetes.io/part-of": "flagstaff", "app.kubernetes.io/component": "controller",
        }  # fmt: skip
        assert deployment["template"]["spec"]["serviceAccountName"] == "flagstaff-controller"
        [container] = deployment["template"]["spec"]["containers"]
        environment = {entry["name"]: entry.get("value") for entry in container["env"]}
        settings = settings_of(
            ControllerSettings,
            watch_label_selector=environment["FLAGSTAFF_WATCH_LABEL_SELECTOR"],
            namespace="platform",
        )
        assert settings.shard.owns(thing("FlagSet", "a", labels={SHARD_KEY: shard} if shard else {}))
        service = settings.artifact_server(9090).partition(".")[0]
        for of in (service, service.replace("artifacts", "receiver")):
            selected = rendered["Service", "platform", of]["spec"]["selector"]
            assert selected == {**pods, "flagstaff.dev/leader": settings.lease}
        budget = rendered["PodDisruptionBudget", "platform", name]["spec"]
        assert budget["selector"]["matchLabels"] == pods


def test_the_shards_of_kustomize_are_those_of_the_chart(
    cluster: Plane, helm: Callable[..., str], tmp_path: Path
) -> None:
    """With a second one as its page says, and a component that knows the pods of the controller."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy", ignore=shutil.ignore_patterns("chart"))
    shards = tmp_path / "deploy" / "shards"
    shutil.copytree(shards / "shard1", shards / "shard2")
    for path, old, new in (
        ("shard2", "shard1", "shard2"),
        ("", "shard1]", "shard1, shard2]"),
        ("installation", "images:", "  - ../../components/high-availability\nimages:"),
    ):
        file = shards / path / "kustomization.yaml"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))
    given = (*SHARDED[:2], "--set", "components.high-availability=true")
    rendered = objects(helm("template", "x", str(CHART), "-n", "flagstaff-system", *given))
    kustomized = objects(cluster.kubectl("kustomize", str(shards)))
    assert kustomized.keys() == rendered.keys()
    for identity, wanted in rendered.items():
        assert kustomized[identity] == wanted, identity


@pytest.mark.parametrize("option", ["lease-name", "artifact-address", "watch-label-selector"])
def test_an_option_that_would_be_the_same_for_every_shard_is_refused(
    helm: Callable[..., str], option: str
) -> None:
    given = ("--set", f"controller.settings.{option}=x")
    output = helm("template", "x", str(CHART), *SHARDED, *given, check=False)
    assert f"controller.settings.{option} would be the same for every shard" in output


SCOPE: Final = {"matchLabels": {"team": "shop"}}


def selectors(text: str) -> dict[str, object]:
    """The namespaceSelector of each webhook by its name."""
    documents = yaml.load_all(text, yaml.CSafeLoader)
    webhooks = [webhook for each in documents if each for webhook in each.get("webhooks", ())]
    return {webhook["name"]: webhook["namespaceSelector"] for webhook in webhooks}


def test_one_selector_scopes_every_webhook_that_no_label_opts_in_to(
    cluster: Plane, helm: Callable[..., str], tmp_path: Path
) -> None:
    usual = selectors(cluster.kubectl("kustomize", str(ROOT / "deploy")))
    assert selectors(helm("template", "x", str(CHART), "-n", "flagstaff-system")) == usual
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    scope = tmp_path / "deploy" / "webhook-scope" / "scope.yaml"
    document = yaml.safe_load(scope.read_text())
    scope.write_text(json.dumps({**document, "namespaceSelector": SCOPE}))
    scoped = selectors(cluster.kubectl("kustomize", str(tmp_path / "deploy")))
    assert {"inject.flagstaff.dev", "workloads.flagstaff.dev", "validate.flagstaff.dev"} <= scoped.keys()
    everywhere = usual["inject.flagstaff.dev"]
    assert scoped == {name: SCOPE if was == everywhere else was for name, was in usual.items()}
    words = ("--set-json", f"admission.namespaceSelector={json.dumps(SCOPE)}")
    assert selectors(helm("template", "x", str(CHART), "-n", "flagstaff-system", *words)) == scoped


@pytest.mark.parametrize(
    ("assignment", "place"),
    [
        ("components.admision=true", "components"),
        ("proxy.replicas=many", "replicas"),
        ("crds.skip={nothing}", "skip"),
        ("controller.settings.SOURCE=x", "SOURCE"),
        ("sharding.shards={Shard_1}", "shards"),
        ("sharding.shards={a,a}", "shards"),
    ],
)
def test_a_value_that_the_schema_does_not_know_is_refused(
    helm: Callable[..., str], assignment: str, place: str
) -> None:
    output = helm("template", "flagstaff", str(CHART), "--set", assignment, check=False)
    assert "values don't meet the specifications of the schema" in output
    assert place in output


def test_the_schema_names_every_component_and_definition() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    folders = {folder.name for folder in (ROOT / "deploy" / "components").iterdir()}
    assert schema["components"]["properties"].keys() == folders
    assert yaml.safe_load((CHART / "values.yaml").read_text())["components"].keys() == folders
    assert set(schema["crds"]["properties"]["skip"]["items"]["enum"]) == {
        file.stem for file in (ROOT / "crds").iterdir()
    }


def test_the_chart_passes_helm_lint(helm: Callable[..., str]) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.fixture
def empty(cluster: Plane) -> Iterator[Plane]:
    """A plane that has nothing of Flagstaff."""
    with (
        tempfile.TemporaryDirectory(prefix="flagstaff-chart-") as folder,
        run_plane(cluster.assets, Path(folder)) as plane,
    ):
        yield plane


@pytest.fixture
def divided(empty: Plane, helm: Callable[..., str]) -> Iterator[Callable[[str], str]]:
    """Types the command of the page about shards that begins so, beside a release that is gone at the end."""
    where = ("-n", "flagstaff-system", "--kubeconfig", str(empty.kubeconfig))
    helm("install", "flagstaff", str(CHART), *where, "--create-namespace")
    lines = (ROOT / "docs" / "sharding.md").read_text().splitlines()

    def type_(begin: str) -> str:
        [line] = [line.strip() for line in lines if line.startswith(f"    {begin}")]
        program, *words = shlex.split(line)
        known = [str(ROOT / word) if word.startswith("deploy/") else word for word in words]
        return helm(*known, *where[2:]) if program == "helm" else empty.kubectl(*known)

    yield type_
    helm("uninstall", "flagstaff", *where, check=False)


def test_the_commands_of_the_page_divide_an_installation(
    empty: Plane, helm: Callable[..., str], divided: Callable[[str], str]
) -> None:
    where = ("-n", "flagstaff-system", "-o", "name")
    names = ("admission", "controller", "controller-shard1", "controller-shard2", "proxy")
    divided("helm upgrade ")
    every = [f"deployment.apps/flagstaff-{name}" for name in names]
    assert empty.kubectl("get", "deployments", *where).split() == every
    empty.kubectl("create", "namespace", "shop")
    objects_ = [flag_source("https://git.example.com/shop/flags.git"), flag_set()]
    for each in objects_:
        empty.kubectl("apply", "-n", "shop", "-f", "-", given=json.dumps(each))
    divided("kubectl label ")
    labelled = empty.kubectl(
        "get", "flagsources,flagsets", "-n", "shop", "-l", f"{SHARD_KEY}=shard1", "-o", "name"
    )
    assert len(labelled.split()) == len(objects_)

    helm("uninstall", "flagstaff", "-n", "flagstaff-system", "--kubeconfig", str(empty.kubeconfig))
    within(lambda: not empty.kubectl("get", "deployments", *where).split())
    divided("kubectl apply -k ")
    assert empty.kubectl("get", "deployments", *where).split() == every[:3] + every[4:]
    assert (
        len(
            empty.kubectl(
                "get", "services", *where, "-l", "app.kubernetes.io/name=flagstaff-controller-shard1"
            ).split()
        )
        == 2
    )


def test_a_release_is_installed_upgraded_and_removed_and_keeps_the_definitions(
    empty: Plane, helm: Callable[..., str]
) -> None:
    where = ("-n", "flagstaff-chart", "--kubeconfig", str(empty.kubeconfig))
    output = helm("install", "flagstaff", str(CHART), *where, "--create-namespace")
    assert "flagstaff create source git" in output
    deployments = ("get", "deployments", "-n", "flagstaff-chart", "-o", "name")
    assert empty.kubectl(*deployments).split() == [
        f"deployment.apps/flagstaff-{name}" for name in ("admission", "controller", "proxy")
    ]
    # What the controller fills in stays through an upgrade.
    secret = ("secret", "flagstaff-admission", "-n", "flagstaff-chart")
    empty.kubectl("patch", *secret, "--type=merge", "-p", '{"stringData": {"tls.crt": "x"}}')
    helm("upgrade", "flagstaff", str(CHART), *where, "--set", "components.proxy-tls=true,proxy.replicas=3")
    assert empty.kubectl("get", *secret, "-o", "jsonpath={.data}") == '{"tls.crt":"eA=="}'
    proxy = json.loads(empty.kubectl("get", "deployment", "flagstaff-proxy", *where[:2], "-o", "json"))
    assert proxy["spec"]["replicas"] == 3
    [container] = proxy["spec"]["template"]["spec"]["containers"]
    assert {"name": "FLAGSTAFF_AUTH", "value": "enforce"} in container["env"]
    helm("rollback", "flagstaff", "1", *where)
    helm("uninstall", "flagstaff", *where)
    within(lambda: not empty.kubectl(*deployments).split())
    assert "flagsets.flagstaff.dev" in empty.kubectl("get", "crds", "-o", "name")
