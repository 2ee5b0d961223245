"""A pod that asks comes back from the API server with its evaluator; no other pod is any of our business."""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import re
import signal
import ssl
import time
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.featureflagconfiguration import KIND
from tests.clients.evaluator import evaluator
from tests.cluster.admission import (
    MANIFEST,
    SECRET,
    AdmissionProcess,
    authorities,
    install_rights,
    install_webhooks,
    trusted_authorities,
)
from tests.cluster.api import MERGE, Api, Refused, path_of
from tests.cluster.controllers import ControllerProcess, controller
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.proxies import proxy
from tests.cluster.relay import Relay
from tests.cluster.replica import run_replica
from tests.cluster.test_flagd import make_ready
from tests.sync_sources import HttpPeer, respond
from tests.worlds.flags import flags
from tests.worlds.objects import configuration, manifest, reader, secret, workload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from tests.cluster.plane import Plane

ASKS = {"openfeature.dev/enabled": "true", "flagstaff.dev/flagset": "checkout-production"}
SAFE = {
    "runAsNonRoot": True, "runAsUser": 1000, "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


class Service(Relay):
    """Leads each connection to the next of its replicas, whether that one works or not."""

    def __init__(self, target: int) -> None:
        self.behind: Iterator[int] = itertools.repeat(target)
        super().__init__(target)

    def choose(self) -> int:
        return next(self.behind)

    def lead_to(self, *replicas: AdmissionProcess) -> None:
        """From now on; the API server connects anew."""
        self.behind = itertools.cycle([each.admission for each in replicas])
        self.cut()
        self.mend()


class Admitting:
    """Two replicas of admission, where the API server finds one of them, and the controller."""

    def __init__(
        self,
        plane: Plane,
        replicas: tuple[AdmissionProcess, ...],
        address: Service,
        controller: ControllerProcess,
    ) -> None:
        self.plane = plane
        self.controller = controller
        self.replicas = replicas
        self.address = address

    def request_times(self) -> list[float]:
        """How often the API server asked each."""
        series = re.compile(r"^flagstaff_admission_reviews_total\{.*\} (\S+)$", re.MULTILINE)
        return [sum(map(float, series.findall(each.metrics()))) for each in self.replicas]


@pytest.fixture(scope="module")
def admitting(spare: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admitting]:
    folder = tmp_path_factory.mktemp("admission")
    with proxy(spare, folder / "proxy", "--auth", "enforce") as delivering:
        words = "--evaluator-image", "example/evaluator:1", "--proxy-address", delivering.target
        with controller(spare, folder / "controller", "--lease-name", "admission", *words) as leader:
            install_rights(spare)
            with (
                run_replica(AdmissionProcess(spare, folder / "a", *words, name="a")) as one,
                run_replica(AdmissionProcess(spare, folder / "b", *words, name="b")) as other,
                contextlib.closing(Service(one.admission)) as address,
            ):
                install_webhooks(spare, address.port)
                yield Admitting(spare, (one, other), address, leader)


@pytest.fixture
def shop(admitting: Admitting, spare_namespace: str) -> Namespace:
    """A namespace with the flag set that pods ask for, known to the replica that answers."""
    space = Namespace(admitting.plane, spare_namespace)
    space.apply(configuration("checkout-production", flagSpec=json.loads(flags(banner="on"))))
    space.wait_ready("ffc", "checkout-production")
    within(partial(is_admitted, space))
    return space


def pod(name: str, annotations: dict[str, str], **container: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "app", "image": "app:1", "securityContext": SAFE, **container}]},
    }


def create(space: Namespace, manifest: dict[str, Any], query: str = "") -> dict[str, Any]:
    return space.api.ask("POST", path_of("pod", space.name) + query, manifest)


def is_admitted(space: Namespace, annotations: dict[str, str] = ASKS) -> bool:
    """Whether the API server is answered, believes the answer, and takes such a pod."""
    try:
        return bool(create(space, pod("asking", annotations), "?dryRun=All"))
    except Refused:
        return False


def sidecar_of(found: dict[str, Any]) -> dict[str, Any]:
    (first,) = found["spec"]["initContainers"]
    container: dict[str, Any] = first
    return container


def test_a_pod_that_asks_comes_back_with_its_evaluator(shop: Namespace, admitting: Admitting) -> None:
    before = sum(admitting.request_times())
    found = create(shop, pod("checkout", ASKS))
    # What the API server adds to each container is there already: it has no reason to ask again.
    assert sum(admitting.request_times()) == before + 1
    assert (sidecar_of(found)["name"], sidecar_of(found)["restartPolicy"]) == (
        "flagstaff-evaluator",
        "Always",
    )
    variables = {each["name"]: each["value"] for each in found["spec"]["containers"][0]["env"]}
    assert (variables["FLAGD_PORT"], variables["OFREP_ENDPOINT"]) == ("8013", "http://127.0.0.1:8016")
    injected = json.loads(found["metadata"]["annotations"]["flagstaff.dev/injected"])
    assert injected["flagSet"] == f"{shop.name}/checkout-production"
    assert injected["from"] == f"{KIND}/checkout-production"


def test_a_feature_flag_source_says_what_is_injected(shop: Namespace, admitting: Admitting) -> None:
    spec = {
        "sources": [{"source": "checkout-production", "provider": "flagd-proxy"}],
        "port": 9013,
        "syncProviderArgs": ["x"],
        "evaluator": "json",
    }
    given = manifest("FeatureFlagSource", "flags", spec)
    shop.kubectl("apply", "-f", "-", given=json.dumps(given))
    asks = {"openfeature.dev/enabled": "true", "openfeature.dev/featureflagsource": "flags"}
    within(partial(is_admitted, shop, asks), admitting.replicas[0].log_text)
    wanted = json.dumps(pod("checkout", asks))
    created = shop.kubectl("create", "-f", "-", "-o", "json", given=wanted, check=False)
    found = shop.get("pod", "checkout")
    assert f'"selector":"{shop.name}/checkout-production"' in sidecar_of(found)["args"][1]
    assert {"name": "FLAGD_PORT", "value": "9013"} in found["spec"]["containers"][0]["env"]
    assert "Warning: FeatureFlagSource: syncProviderArgs is ignored" in created
    missing = pod("other", {**asks, "openfeature.dev/featureflagsource": "flag"})
    with pytest.raises(Refused, match="has no FeatureFlagSource flag; create it"):
        create(shop, missing)


def test_a_provider_that_evaluates_by_itself_is_pointed_at_the_proxy(
    shop: Namespace, admitting: Admitting
) -> None:
    given = manifest("InProcessConfiguration", "flags", {"selector": "checkout-production"})
    shop.kubectl("apply", "-f", "-", given=json.dumps(given))
    asks = {"openfeature.dev/enabled": "true", "openfeature.dev/inprocessconfiguration": "flags"}
    within(partial(is_admitted, shop, asks), admitting.replicas[0].log_text)
    found = create(shop, pod("checkout", asks))
    variables = {each["name"]: each["value"] for each in found["spec"]["containers"][0]["env"]}
    assert variables["FLAGD_SOURCE_SELECTOR"] == f"{shop.name}/checkout-production"
    assert "initContainers" not in found["spec"]


def test_an_injected_pod_can_be_labelled_and_deleted(shop: Namespace) -> None:
    create(shop, pod("checkout", ASKS))
    body = {"metadata": {"labels": {"team": "shop"}, "finalizers": ["example.com/wait"]}}
    found = shop.api.ask("PATCH", path_of("pod", shop.name, "checkout"), body, MERGE)
    assert found["metadata"]["labels"] == {"team": "shop"}
    shop.patch("pod", {"metadata": {"finalizers": None}}, "checkout")
    shop.api.ask("DELETE", path_of("pod", shop.name, "checkout"), {"gracePeriodSeconds": 0})
    shop.wait_gone("pod", "checkout")


def test_a_pod_that_does_not_ask_is_never_sent_to_us(shop: Namespace, admitting: Admitting) -> None:
    before, connections = admitting.request_times(), admitting.address.accepted
    given = pod("other", {"openfeature.dev/enabled": "false", "flagstaff.dev/flagset": "checkout-production"})
    without = pod("plain", {})
    del without["metadata"]["annotations"]
    for each in (given, without):
        found = create(shop, each)
        assert "initContainers" not in found["spec"]
        assert "env" not in found["spec"]["containers"][0]
    assert (admitting.request_times(), admitting.address.accepted) == (before, connections)


def test_the_controllers_own_namespace_is_left_out(shop: Namespace, admitting: Admitting) -> None:
    found = create(Namespace(admitting.plane, "flagstaff-system"), pod("own", ASKS), "?dryRun=All")
    assert "initContainers" not in found["spec"]


def test_a_refused_pod_gets_the_reason_and_is_not_there(shop: Namespace) -> None:
    with pytest.raises(Refused) as refusal:
        create(shop, pod("checkout", {**ASKS, "flagstaff.dev/flagset": "checkout-prod"}))
    assert (
        'admission webhook \\"inject.flagstaff.dev\\" denied the request: annotation flagstaff.dev/flagset: '
        f"namespace {shop.name} has no FlagSet, FeatureFlagConfiguration or FeatureFlag checkout-prod; "
        "create it, or correct the name (did you mean checkout-production?)"
    ) in str(refusal.value)
    assert shop.all("pod") == []


def test_pod_security_restricted_admits_what_was_injected(shop: Namespace) -> None:
    shop.api.ask("PATCH", f"/api/v1/namespaces/{shop.name}", {"metadata": {"labels": RESTRICTED}}, MERGE)
    with pytest.raises(Refused):
        create(shop, pod("unsafe", ASKS, securityContext={}))
    assert sidecar_of(create(shop, pod("checkout", ASKS)))


def deployment(annotations: dict[str, str]) -> dict[str, Any]:
    """A Deployment of pods as `pod` makes them."""
    made = workload(below=annotations)
    made["spec"]["template"]["spec"] = pod("", ASKS)["spec"]
    return made


def test_the_owner_of_a_refused_pod_has_an_event_that_says_why(shop: Namespace) -> None:
    shop.apply(deployment({**ASKS, "flagstaff.dev/flagset": "checkout-prod"}))

    def is_reported() -> bool:
        return any(
            each["involvedObject"]["kind"] == "ReplicaSet"
            and "did you mean checkout-production?" in each["message"]
            for each in shop.all("event")
        )

    within(is_reported, lambda: json.dumps(shop.all("event"))[-3000:])


def test_a_flag_set_of_another_namespace_is_followed_once_the_grant_of_the_refusal_is_applied(
    shop: Namespace, admitting: Admitting
) -> None:
    borrower = Namespace(admitting.plane, f"{shop.name}-next")
    borrower.plane.kubectl("create", "namespace", borrower.name)
    asks = {**ASKS, "flagstaff.dev/flagset": f"{shop.name}/checkout-production"}
    within(lambda: borrower.get("serviceaccount", "default"))
    with pytest.raises(Refused) as refusal:
        create(borrower, pod("checkout", asks))
    text = json.loads(str(refusal.value).partition(" ")[2])["message"]
    shop.kubectl("apply", "-f", "-", given=text.partition("may apply: ")[2])
    within(partial(is_admitted, borrower, asks), admitting.replicas[0].log_text)
    found = create(borrower, pod("checkout", asks))
    assert f'"selector":"{shop.name}/checkout-production"' in sidecar_of(found)["args"][1]
    borrower.plane.kubectl("delete", "namespace", borrower.name, "--wait=false")


def test_the_owner_gets_an_event_but_not_on_a_dry_run(shop: Namespace) -> None:
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    replicas = {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "checkout"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }  # fmt: skip
    shop.apply(replicas)
    uid = shop.get("replicaset", "checkout")["metadata"]["uid"]

    def require_refusal(flag_set: str, query: str = "") -> None:
        given = pod("checkout", {**ASKS, "flagstaff.dev/flagset": flag_set})
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "checkout", "uid": uid}
        given["metadata"]["ownerReferences"] = [owner]
        with pytest.raises(Refused):
            create(shop, given, query)

    def messages() -> list[str]:
        events = [each for each in shop.all("event") if each["reason"] == "InjectionRefused"]
        # That of the flag set is for alerts.
        return [each["message"] for each in events if each["involvedObject"]["kind"] == "ReplicaSet"]

    require_refusal("dry", "?dryRun=All")
    require_refusal("wet")
    within(messages)
    assert len(messages()) == 1
    assert "FeatureFlag wet; create it" in messages()[0]


def test_a_jobs_evaluator_does_not_keep_it_from_finishing(shop: Namespace) -> None:
    template = pod("", ASKS)
    template["spec"]["restartPolicy"] = "Never"
    job = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate"},
        "spec": {"template": {"metadata": {"annotations": ASKS}, "spec": template["spec"]}},
    }  # fmt: skip
    shop.kubectl("create", "-f", "-", given=json.dumps(job))
    (found,) = within(lambda: shop.all("pod"), lambda: json.dumps(shop.all("event"))[-3000:])
    # A kubelet ends those once the pod's containers are through, which an evaluator beside them never is.
    assert sidecar_of(found)["restartPolicy"] == "Always"
    assert [each["name"] for each in found["spec"]["containers"]] == ["app"]
    through = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}, "image": "x", "imageID": "",
               "ready": False, "restartCount": 0}  # fmt: skip
    status = {
        "phase": "Succeeded",
        "initContainerStatuses": [{**through, "name": "flagstaff-evaluator"}],
        "containerStatuses": [{**through, "name": "app"}],
    }
    path = path_of("pod", shop.name, found["metadata"]["name"]) + "/status"
    shop.api.ask("PATCH", path, {"status": status}, MERGE)
    shop.kubectl("wait", "--for=condition=Complete", "job/migrate", "--timeout=60s")


@pytest.mark.long
def test_what_another_manager_applies_again_and_again_has_no_drift_and_costs_no_write_of_ours(
    shop: Namespace, admitting: Admitting
) -> None:
    everything = [
        deployment(ASKS),
        manifest("FeatureFlagSource", "flags", {"sources": [{"source": "checkout-production"}]}),
        manifest("InProcessConfiguration", "flags", {"selector": "checkout-production"}),
        manifest("Flagd", "flags", {"featureFlagSource": "flags", "replicas": 1}),
    ]
    text = "---\n".join(json.dumps(each) + "\n" for each in everything)
    words = ("apply", "--server-side", "--field-manager=argocd-controller", "-f", "-")
    shop.kubectl(*words, given=text)
    kinds = ("featureflagsource", "inprocessconfiguration", "flagd", "featureflagconfiguration", "deployment",
             "service", "replicaset", "pod", "event")  # fmt: skip

    def versions() -> dict[str, str]:
        return {
            each["metadata"]["uid"]: each["metadata"]["resourceVersion"]
            for kind in kinds
            for each in shop.all(kind)
        }

    def state() -> tuple[dict[str, str], list[list[str]]]:
        # Of kinds that no other test here has: namespaces of those that are through are still taken down.
        series = re.compile(
            r'^flagstaff_api_writes_total\{kind="(?:Flagd|Deployment|Service)".*$', re.MULTILINE
        )
        return versions(), sorted(series.findall(admitting.controller.metrics()))

    def at_rest() -> bool:
        """Whether each Deployment has its pod, and nothing is written for two seconds."""
        before = state()
        time.sleep(2)
        return len(shop.all("pod")) == 2 and state() == before

    make_ready(shop)
    shop.wait_ready("featureflagsource")
    shop.wait_ready("inprocessconfiguration")
    within(at_rest)
    before = state()
    for _ in range(5):
        shop.kubectl(*words, given=text)
        # What is asked is of a loop that comes every second.
        time.sleep(1)
    assert state() == before
    shown = shop.kubectl(*words, "--dry-run=server", "-o", "json", given=text)
    for each in json.loads(shown)["items"]:
        live = shop.get(each["kind"], each["metadata"]["name"])
        assert (live["spec"], live["metadata"].get("labels")) == (
            each["spec"],
            each["metadata"].get("labels"),
        )


def test_each_replica_answers(shop: Namespace, admitting: Admitting) -> None:
    for number, replica in enumerate(admitting.replicas):
        admitting.address.lead_to(replica)
        within(partial(is_admitted, shop))
        before = admitting.request_times()
        found = create(shop, pod(f"checkout-{number}", ASKS))
        assert sidecar_of(found)
        asked = [after > earlier for after, earlier in zip(admitting.request_times(), before, strict=True)]
        assert asked == [each is replica for each in admitting.replicas]


@pytest.mark.long
def test_a_replica_that_is_killed_while_pods_are_created_loses_none(
    shop: Namespace, admitting: Admitting
) -> None:
    staying, dying = admitting.replicas
    admitting.address.lead_to(dying, staying)
    within(partial(is_admitted, shop))
    before = admitting.request_times()[admitting.replicas.index(dying)]
    try:
        for number in range(20):
            if number == 5:
                wanted = deployment(ASKS)
                shop.apply({**wanted, "spec": {**wanted["spec"], "replicas": 40}})
            if number == 10:
                assert admitting.request_times()[admitting.replicas.index(dying)] > before
                dying.end(signal.SIGKILL)
            # Every other connection still leads to the one that is gone, for as long as there are any.
            within(partial(is_created, shop, f"single-{number}"))
        within(lambda: len(shop.all("pod")) == 60, lambda: json.dumps(shop.all("event"))[-3000:])
        assert [sidecar_of(each)["name"] for each in shop.all("pod")] == ["flagstaff-evaluator"] * 60
    finally:
        dying.start()
        admitting.address.lead_to(staying)


def is_created(space: Namespace, name: str) -> bool:
    """Whether there is such a pod now; a client asks again where the webhook could not be asked."""
    try:
        return bool(create(space, pod(name, ASKS)))
    except Refused as refusal:
        if "failed calling webhook" in str(refusal):
            return False
        raise


def test_the_certificate_is_of_the_authority_in_the_secret_and_a_lost_one_is_made_anew(
    shop: Namespace, admitting: Admitting
) -> None:
    before = authorities(admitting.plane)
    context = ssl.create_default_context(cadata=before.decode())
    assert [post_status(each, context) for each in admitting.replicas] == [400, 400]
    admitting.plane.kubectl("patch", "secret", "-n", "flagstaff-system", "flagstaff-admission",
                            "--type=json", "-p", '[{"op":"remove","path":"/data"}]')  # fmt: skip
    within(lambda: authorities(admitting.plane) not in {b"", before})
    within(lambda: trusted_authorities(admitting.plane) == authorities(admitting.plane))
    for each in admitting.replicas:
        each.mount()
    within(partial(is_admitted, shop))
    assert Api(admitting.plane).find(SECRET)["type"] == "Opaque"


def test_the_api_server_is_answered_by_the_certificate_that_it_shows(
    shop: Namespace, spare: Plane, admitting: Admitting, tmp_path: Path
) -> None:
    words = ("--admission-client-ca", str(spare.callers))
    with run_replica(AdmissionProcess(spare, tmp_path / "closed", *words)) as closed:
        context = ssl.create_default_context(cadata=authorities(spare).decode())
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            post_status(closed, context)
        try:
            admitting.address.lead_to(closed)
            within(partial(is_admitted, shop))
            assert "flagstaff_admission_reviews_total" in closed.metrics()
        finally:
            admitting.address.lead_to(admitting.replicas[0])


def post_status(replica: AdmissionProcess, context: ssl.SSLContext) -> int:
    """The status of the answer to what is no review."""
    connection = http.client.HTTPSConnection("127.0.0.1", replica.admission, context=context, timeout=10)
    try:
        connection.request("POST", "/inject", b"nonsense")
        return connection.getresponse().status
    finally:
        connection.close()


def test_what_is_deployed_may_be_applied_again_without_losing_certificates(admitting: Admitting) -> None:
    before = authorities(admitting.plane)
    install_rights(admitting.plane)
    install_webhooks(admitting.plane, admitting.address.port)
    assert (authorities(admitting.plane), trusted_authorities(admitting.plane)) == (before, before)
    plain = admitting.plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(MANIFEST))
    assert plain.count("dry run") == 9


def test_the_injected_container_serves_the_flag(shop: Namespace, tmp_path: Path) -> None:
    shop.apply(*reader("default"))
    found = create(shop, pod("checkout", ASKS))
    words, environ = started_as_a_kubelet_would(shop, found, tmp_path)
    with evaluator(*words, cwd=tmp_path, environ=environ, leading=()) as running:
        ports = running.next_event("listening")
        running.next_event("flags served")
        url = f"http://127.0.0.1:{ports['ofrep']}/ofrep/v1/evaluate/flags/banner"
        asked = urllib.request.Request(url, b"{}", {"content-type": "application/json"})
        with urllib.request.urlopen(asked) as answer:
            assert json.load(answer)["value"] is True
        within(lambda: [*(tmp_path / "state").glob("*.flags")])


def test_a_token_of_a_secret_reaches_the_evaluator_and_stands_nowhere_else(
    shop: Namespace, admitting: Admitting, tmp_path: Path
) -> None:
    token, server = "hush-4c1f", HttpPeer()
    server.content = flags(banner="on").encode()
    server.answer = partial(refuses_all_but, token)
    source = {"source": server.uri, "provider": "http", "secretRef": {"name": "flags-token"}}
    shop.apply(
        secret("flags-token", token=token), manifest("FeatureFlagSource", "flags", {"sources": [source]})
    )
    shop.wait_ready("featureflagsource")
    asks = {"openfeature.dev/enabled": "true", "openfeature.dev/featureflagsource": "flags"}
    for each in admitting.replicas:
        within(partial(is_admitted, shop, asks), each.log_text)
    found = create(shop, pod("checkout", asks))
    words, environ = started_as_a_kubelet_would(shop, found, tmp_path)
    with contextlib.closing(server), evaluator(*words, cwd=tmp_path, environ=environ, leading=()) as running:
        running.next_event("flags served")
    seen = [found, words, environ, running.log, shop.get("featureflagsource"), *shop.all("event")]
    assert token not in json.dumps(seen)


def refuses_all_but(token: str, request: BaseHTTPRequestHandler) -> bool:
    """Whether the request had no such token, and was refused."""
    if request.headers.get("Authorization") == f"Bearer {token}":
        return False
    respond(request, 401, b"")
    return True


def started_as_a_kubelet_would(
    shop: Namespace, found: dict[str, Any], folder: Path
) -> tuple[list[str], dict[str, str]]:
    """The arguments and variables of the container in the pod `found`, its volumes being in `folder`; its
    ports are free ones, since a pod has a network of its own.
    """
    container, meta = sidecar_of(found), found["metadata"]
    fields = {f"metadata.{key}": meta[key] for key in ("name", "namespace", "uid")} | {
        "spec.nodeName": "node-1"
    }
    environ = {each["name"]: fields[each["valueFrom"]["fieldRef"]["fieldPath"]] for each in container["env"]}
    volumes = {each["name"]: each for each in found["spec"]["volumes"]}
    paths = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    (source,) = volumes["flagstaff-token"]["projected"]["sources"]
    wanted = source["serviceAccountToken"]
    token = shop.kubectl(
        "create", "token", found["spec"]["serviceAccountName"], "--audience", wanted["audience"],
        "--duration", f"{wanted['expirationSeconds']}s", "--bound-object-kind", "Pod",
        "--bound-object-name", meta["name"], "--bound-object-uid", meta["uid"],
    )  # fmt: skip
    for name in ("token", "state"):
        (folder / name).mkdir()
    secrets = {name: each["secret"] for name, each in volumes.items() if "secret" in each}
    for name, mounted in secrets.items():
        (folder / name).mkdir()
        content = shop.get("secret", mounted["secretName"])["data"]
        for item in mounted["items"]:
            (folder / name / item["path"]).write_bytes(base64.b64decode(content[item["key"]]))
    (folder / "token" / wanted["path"]).write_text(token.strip())
    words = container["args"]
    assert words[0] == "start"
    for name in ("token", "state"):
        words = [each.replace(paths[f"flagstaff-{name}"], str(folder / name)) for each in words]
    for name in secrets:
        words = [each.replace(paths[name], str(folder / name)) for each in words]
    words = [re.sub(r"^(--[a-z-]*port)=\d+$", r"\1=0", each) for each in words[1:]]
    return [each.replace("host=0.0.0.0", "host=127.0.0.1") for each in words], environ
