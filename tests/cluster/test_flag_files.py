"""Flags in files on a real API server: a ConfigMap comes with the first pod, follows the flags, and goes with
the last owner. There is no kubelet here: the test copies the ConfigMap where it would.
"""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

from controller.api.meta import Resource
from controller.pods.installation import Options
from controller.pods.known_objects import KnownObjects
from controller.pods.pod_injection import inject_manifest
from controller.runtime.cache import Cache
from tests.clients.evaluator import evaluator
from tests.cluster.patience import within
from tests.worlds.flags import flags
from tests.worlds.objects import configuration, manifest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.evaluator import Evaluator
    from tests.cluster.objects import Namespace
    from tests.cluster.proxies import ProxyProcess

ASKS = {"openfeature.dev/enabled": "true", "openfeature.dev/featureflagsource": "source"}
KEY = "{}_flags.flagd.json"
CHANGED = "flagstaff.dev/flags-changed"


def deployment(space: Namespace, proxy: str) -> dict[str, Any]:
    """As the webhook makes its pods."""
    source = manifest("FeatureFlagSource", "source", {"sources": [{"source": "flags", "provider": "file"}]})
    objects = Cache()
    objects.learn(Resource.of({**source, "metadata": {"name": "source", "namespace": space.name}}))
    template = {
        "metadata": {"labels": {"app": "checkout"}, "annotations": ASKS},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "checkout"}}, "template": template}
    given = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "flags"}, "spec": spec}
    options = Options(proxy_address=proxy, flag_files=True)
    found: dict[str, Any] = inject_manifest(given, space.name, options, KnownObjects(objects, ()))
    return found


def default(space: Namespace) -> str:
    """What the ConfigMap says of the flag."""
    content = space.get("configmap").get("data", {}).get(KEY.format(space.name), "{}")
    return str(json.loads(content).get("flags", {}).get("banner", {}).get("defaultVariant"))


def marks(space: Namespace) -> set[str | None]:
    return {each["metadata"]["annotations"].get(CHANGED) for each in space.all("pod")}


def owners(space: Namespace) -> set[str]:
    """The kinds of the ConfigMap's."""
    return {each["kind"] for each in space.get("configmap")["metadata"]["ownerReferences"]}


def mount_config_map(space: Namespace, folder: Path) -> None:
    """The ConfigMap as a kubelet renews it: by rename."""
    name = KEY.format(space.name)
    (folder / "new").write_text(space.get("configmap")["data"][name])
    (folder / "new").rename(folder / name)


def serves(running: Evaluator, port: int, value: bool) -> bool:
    assert running.process.poll() is None
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/ofrep/v1/evaluate/flags/banner", b"{}", {"content-type": "application/json"}
    )
    with urllib.request.urlopen(asked) as answer:
        return json.load(answer)["value"] is value


def test_a_config_map_follows_the_flags_and_the_evaluators_that_serve_it_are_counted(
    space: Namespace, delivering: ProxyProcess, tmp_path: Path
) -> None:
    space.apply(configuration("flags", flagSpec=json.loads(flags(banner="on"))))
    space.wait_ready("ffc")
    assert space.get("configmap") == {}
    space.apply(deployment(space, delivering.target))
    within(lambda: default(space) == "on", lambda: str(space.events()))
    within(lambda: len(space.all("pod")) == 2 and marks(space) != {None})
    assert owners(space) == {"ReplicaSet"}

    (container, *_) = space.all("pod")[0]["spec"]["initContainers"]
    words = [
        each.replace(f"/etc/flagd/{space.name}_flags", str(tmp_path))
        .replace("/var/run/flagstaff/token/token", str(tmp_path / "token"))
        .replace("/var/lib/flagstaff", str(tmp_path / "state"))
        for each in container["args"][1:]
    ]
    words += [f"--{name}port=0" for name in ("", "management-", "sync-", "ofrep-")]
    (tmp_path / "token").write_text(space.kubectl("create", "token", "default"))
    mount_config_map(space, tmp_path)
    pod = {"POD_NAME": "checkout", "POD_NAMESPACE": space.name}
    with evaluator(*words, cwd=tmp_path, environ=pod, leading=()) as running:
        port = running.next_event("listening")["ofrep"]
        running.next_event("flags served")
        assert serves(running, port, True)
        space.wait("ffc", lambda found: found["status"].get("served") == "1/1")

        before = marks(space)
        space.apply(configuration("flags", flagSpec=json.loads(flags(banner="off"))))
        within(lambda: default(space) == "off")
        within(lambda: len(space.all("pod")) == 2 and not marks(space) & before)
        # Until its kubelet has looked, the pod is behind.
        space.wait("ffc", lambda found: found["status"].get("served") == "0/1")
        mount_config_map(space, tmp_path)
        within(lambda: serves(running, port, False))
        space.wait("ffc", lambda found: found["status"].get("served") == "1/1")

    space.delete("deployment")
    space.wait_gone("configmap")


def test_it_goes_with_the_last_of_its_owners(space: Namespace) -> None:
    space.apply(configuration("flags", flagSpec=json.loads(flags(banner="on"))))
    space.wait_ready("ffc")
    made = deployment(space, "127.0.0.1:1")
    space.apply(made)
    within(lambda: default(space) == "on", lambda: str(space.events()))
    # One more owner, of which the ConfigMap learns without a flag set, and for which it outlives the first.
    space.delete("ffc")
    template = made["spec"]["template"]
    bare = {"metadata": {**template["metadata"], "name": "flags"}, "spec": template["spec"]}
    space.apply({"apiVersion": "v1", "kind": "Pod", **bare})
    within(lambda: owners(space) == {"ReplicaSet", "Pod"})
    space.delete("deployment")
    within(lambda: owners(space) == {"Pod"})
    assert default(space) == "on"
    space.delete("pod")
    space.wait_gone("configmap")
