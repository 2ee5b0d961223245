"""Objects of the kinds and workloads, with defaults: a test says what it is about."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from controller.api.meta import Resource
from controller.runtime.cache import Cache
from controller.runtime.watches import indexes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from controller.runtime.watches import Reconciles


NAMESPACE: Final = "shop"
OPENFEATURE_KINDS: Final = {
    "FeatureFlag", "FeatureFlagConfiguration", "FeatureFlagSource", "Flagd", "InProcessConfiguration",
}  # fmt: skip


def manifest(kind: str, name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """One of our kinds, or of OpenFeature Operator's."""
    group = "core.openfeature.dev" if kind in OPENFEATURE_KINDS else "flagstaff.dev"
    named = {"name": name, **metadata}
    return {"apiVersion": f"{group}/v1beta1", "kind": kind, "metadata": named, "spec": spec or {}}


def flag_source(url: str, *, name: str = "flags", **spec: Any) -> dict[str, Any]:
    """A FlagSource that follows branch main; `spec` replaces fields."""
    git = {"url": url, "ref": {"branch": "main"}, **spec.pop("git", {})}
    return manifest("FlagSource", name, {"interval": "1h", "git": git, **spec})


def flag_set(*, name: str = "flags", source: str = "flags", **spec: Any) -> dict[str, Any]:
    """A FlagSet over all files of the source; `spec` replaces fields. Tests may replace all flags."""
    reference = {"kind": "FlagSource", "name": source}
    return manifest("FlagSet", name, {"sourceRef": reference, "pruneGuard": False, **spec})


def configuration(name: str = "flags", **spec: Any) -> dict[str, Any]:
    """A FeatureFlagConfiguration as a user writes it."""
    return manifest("FeatureFlagConfiguration", name, spec)


def secret(name: str, **content: str) -> dict[str, Any]:
    """A Secret; `__` in a key is a dot."""
    encoded = {
        key.replace("__", "."): base64.b64encode(text.encode()).decode() for key, text in content.items()
    }
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}


def reader(account: str, *verbs: str, flag_sets: bool = False) -> Iterator[dict[str, Any]]:
    """A service account that may get the flags of its namespace, and the flag sets that write them; or may do
    more with them.
    """
    rbac, named = "rbac.authorization.k8s.io", {"metadata": {"name": account}}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", **named}
    kinds = {"core.openfeature.dev": "featureflagconfigurations"}
    kinds |= {"flagstaff.dev": "flagsets"} if flag_sets else {}
    rules = [
        {"apiGroups": [group], "resources": [kind], "verbs": verbs or ["get"]}
        for group, kind in kinds.items()
    ]
    yield {"apiVersion": f"{rbac}/v1", "kind": "Role", **named, "rules": rules}
    role = {"apiGroup": rbac, "kind": "Role", "name": account}
    subjects = [{"kind": "ServiceAccount", "name": account}]
    yield {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", **named, "roleRef": role, "subjects": subjects}


def condition(found: dict[str, Any], kind: str) -> dict[str, Any]:
    """A condition of an object, or nothing."""
    conditions = found.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), {})


def current(found: dict[str, Any]) -> bool:
    """Whether the status is of the present spec."""
    seen = found.get("status", {}).get("observedGeneration")
    return bool(seen == found["metadata"]["generation"])


def thing(
    kind: str, name: str, spec: Any = None, status: Any = None, *, namespace: str = NAMESPACE, **metadata: Any
) -> Resource:
    """An object of any kind as a watch reports it, in its first version."""
    known = {"namespace": namespace, "uid": f"{kind}-{name}", "generation": 1, "resourceVersion": "1"}
    return Resource.of({**manifest(kind, name, spec, **{**known, **metadata}), "status": status})


def cache_of(*objects: Resource, stages: Sequence[Reconciles] = ()) -> Cache:
    """A cache with these objects, and the indexes of these stages."""
    cache = Cache(indexes_of(stages))
    for each in objects:
        cache.learn(each)
    return cache


def workload(
    kind: str = "Deployment",
    annotations: Mapping[str, Any] | None = None,
    below: Mapping[str, Any] | None = None,
    *,
    name: str | None = "checkout",
    pod_labels: Mapping[str, str] | None = None,
    template: Any = None,
    **metadata: Any,
) -> dict[str, Any]:
    """A workload that the API server takes; `below`: the annotations of its pods, unless the whole template
    is given.
    """
    labels = {"app": name}
    pods: dict[str, Any] = {
        "metadata": {"labels": {**labels, **(pod_labels or {})}},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
    }
    if below is not None:
        pods["metadata"]["annotations"] = dict(below)
    spec: dict[str, Any] = {"template": pods if template is None else template}
    if kind in {"Job", "CronJob"}:
        pods["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": labels}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    if kind == "CronJob":
        spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": spec}}
    version = "batch/v1" if kind in {"Job", "CronJob"} else "apps/v1"
    own = {} if annotations is None else {"annotations": dict(annotations)}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **own, **metadata}, "spec": spec}
