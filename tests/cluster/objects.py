"""Manifests for cluster tests, and waiting for what becomes of them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.api import MERGE, Api, path_of
from tests.cluster.patience import PATIENCE, within
from tests.worlds.objects import condition, current

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.plane import Plane

REQUESTED_AT: Final = "reconcile.fluxcd.io/requestedAt"


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
