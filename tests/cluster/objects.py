"""Manifests for cluster tests, and waiting for what becomes of them."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.api import MERGE, Api, path_of
from tests.cluster.patience import PATIENCE, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.plane import Plane

REQUESTED_AT: Final = "reconcile.fluxcd.io/requestedAt"


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
    found = manifest("FeatureFlagConfiguration", name, spec)
    return {**found, "apiVersion": "core.openfeature.dev/v1beta1"}


def secret(name: str, **content: str) -> dict[str, Any]:
    """A Secret; `__` in a key is a dot."""
    encoded = {
        key.replace("__", "."): base64.b64encode(text.encode()).decode() for key, text in content.items()
    }
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}


def reader(account: str) -> Iterator[dict[str, Any]]:
    """A service account that may read the flags of its namespace."""
    rbac, named = "rbac.authorization.k8s.io", {"metadata": {"name": account}}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", **named}
    rule = {
        "apiGroups": ["core.openfeature.dev"],
        "resources": ["featureflagconfigurations"],
        "verbs": ["get"],
    }
    yield {"apiVersion": f"{rbac}/v1", "kind": "Role", **named, "rules": [rule]}
    role = {"apiGroup": rbac, "kind": "Role", "name": account}
    subjects = [{"kind": "ServiceAccount", "name": account}]
    yield {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", **named, "roleRef": role, "subjects": subjects}


def manifest(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """One of our kinds."""
    return {"apiVersion": "flagstaff.dev/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def flags(**defaults: str) -> str:
    """A definition of boolean flags, by their default variants."""
    variants = {"on": True, "off": False}
    return json.dumps(
        {
            "flags": {
                key: {"state": "ENABLED", "variants": variants, "defaultVariant": default}
                for key, default in defaults.items()
            }
        }
    )


class Namespace:
    """One namespace of a plane."""

    def __init__(self, plane: Plane, name: str) -> None:
        self.plane = plane
        self.name = name
        self.api = Api(plane)

    def kubectl(self, *arguments: str, given: str | None = None, check: bool = True) -> str:
        """What kubectl prints."""
        return self.plane.kubectl("-n", self.name, *arguments, given=given, check=check)

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Server-side apply of each."""
        for each in manifests:
            self.api.apply(self.name, each)

    def patch(self, kind: str, body: dict[str, Any], name: str = "flags") -> None:
        """A merge patch, as a hand's `kubectl edit` or `patch` sends it."""
        path = path_of(kind, self.name, name)
        self.api.ask("PATCH", f"{path}?fieldManager=kubectl-edit", body, MERGE)

    def delete(self, kind: str, name: str = "flags") -> None:
        """Delete an object."""
        self.api.ask("DELETE", path_of(kind, self.name, name))

    def get(self, kind: str, name: str = "flags") -> dict[str, Any]:
        """An object; empty where there is none."""
        return self.api.find(path_of(kind, self.name, name))

    def all(self, kind: str) -> list[dict[str, Any]]:
        """All objects of a kind."""
        return self.api.items(path_of(kind, self.name))

    def wait(
        self,
        kind: str,
        wanted: Callable[[dict[str, Any]], Any],
        name: str = "flags",
        patience: float = PATIENCE,
    ) -> dict[str, Any]:
        """The object once `wanted` is true of it. Fails, with the object's last state, when it takes too
        long.
        """
        last: dict[str, Any] = {}

        def is_reached() -> Any:
            nonlocal last
            last = self.get(kind, name) or {}
            return last and wanted(last)

        within(is_reached, lambda: json.dumps(last, indent=2)[-4000:], patience)
        return last

    def wait_gone(self, kind: str, name: str = "flags") -> None:
        """Until there is no such object."""
        within(lambda: not self.get(kind, name), lambda: json.dumps(self.get(kind, name), indent=2))

    def wait_ready(self, kind: str, name: str = "flags") -> dict[str, Any]:
        """The object once it is Ready as it is now."""
        return self.wait(
            kind, lambda it: current(it) and condition(it, "Ready").get("status") == "True", name
        )

    def wait_reason(self, kind: str, reason: str, name: str = "flags") -> dict[str, Any]:
        """The object once `reason` is what its readiness says."""
        return self.wait(kind, lambda found: condition(found, "Ready").get("reason") == reason, name)

    def poke(self, kind: str, name: str = "flags") -> str:
        """Ask for a reconcile, as `flux reconcile` does; the request's name."""
        moment = str(time.time_ns())
        self.patch(kind, {"metadata": {"annotations": {REQUESTED_AT: moment}}}, name)
        return moment

    def poke_and_wait(self, kind: str, name: str = "flags") -> dict[str, Any]:
        """Ask for a reconcile; the object once that was done."""
        moment = self.poke(kind, name)
        return self.wait(kind, lambda found: found["status"].get("lastHandledReconcileAt") == moment, name)

    def events(self, name: str = "flags") -> list[dict[str, Any]]:
        """What was said about the objects called `name`."""
        return [each for each in self.all("event") if each["involvedObject"]["name"] == name]

    def served_variants(self, name: str = "flags") -> dict[str, str]:
        """Default variants by key, as the FeatureFlagConfiguration has them."""
        spec = self.get("ffc", name).get("spec", {}).get("flagSpec", {}).get("flags", {})
        return {key: flag["defaultVariant"] for key, flag in spec.items()}


def current(found: dict[str, Any]) -> bool:
    """Whether the status is of the present spec."""
    seen = found.get("status", {}).get("observedGeneration")
    return bool(seen == found["metadata"]["generation"])


def condition(found: dict[str, Any], kind: str) -> dict[str, Any]:
    """A condition of an object, or nothing."""
    conditions = found.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), {})
