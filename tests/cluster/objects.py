"""Manifests for cluster tests, and waiting for what becomes of them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.plane import Plane

PATIENCE: Final = 30.0


def flag_source(url: str, *, name: str = "flags", **spec: Any) -> dict[str, Any]:
    """A FlagSource that follows branch main; `spec` replaces fields."""
    git = {"url": url, "ref": {"branch": "main"}, **spec.pop("git", {})}
    return _object("FlagSource", name, {"interval": "1h", "git": git, **spec})


def flag_set(*, name: str = "flags", source: str = "flags", **spec: Any) -> dict[str, Any]:
    """A FlagSet over all files of the source; `spec` replaces fields."""
    reference = {"kind": "FlagSource", "name": source}
    return _object("FlagSet", name, {"sourceRef": reference, **spec})


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "flagstaff.dev/v1beta1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


class Namespace:
    """One namespace of the plane, as kubectl sees it."""

    def __init__(self, plane: Plane, name: str) -> None:
        self.plane = plane
        self.name = name

    def kubectl(self, *arguments: str, given: str | None = None, check: bool = True) -> str:
        """What kubectl prints."""
        return self.plane.kubectl("-n", self.name, *arguments, given=given, check=check)

    def apply(self, *manifests: dict[str, Any]) -> None:
        """`kubectl apply`."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "-f", "-", given=json.dumps(listed))

    def get(self, kind: str, name: str = "flags") -> dict[str, Any]:
        """An object; empty where there is none."""
        text = self.kubectl("get", kind, name, "-o", "json", "--ignore-not-found")
        found: dict[str, Any] = json.loads(text or "{}")
        return found

    def wait(
        self, kind: str, wanted: Callable[[dict[str, Any]], Any], name: str = "flags"
    ) -> dict[str, Any]:
        """The object once `wanted` is true of it. Fails, with the object's last state, when it takes too long."""
        until = time.monotonic() + PATIENCE
        found = self.get(kind, name)
        while not (found and wanted(found)):
            if time.monotonic() > until:
                raise AssertionError(json.dumps(found, indent=2)[-4000:])
            time.sleep(0.1)
            found = self.get(kind, name)
        return found

    def wait_ready(self, kind: str, name: str = "flags") -> dict[str, Any]:
        """The object once it is Ready."""
        return self.wait(
            kind, lambda found: condition(found, "Ready").get("status") == "True", name
        )

    def wait_reason(self, kind: str, reason: str, name: str = "flags") -> dict[str, Any]:
        """The object once it is not Ready, for `reason`."""
        return self.wait(
            kind, lambda found: condition(found, "Ready").get("reason") == reason, name
        )

    def poke(self, kind: str, name: str = "flags") -> None:
        """Ask for a reconcile, as `flux reconcile` does."""
        moment = str(time.time_ns())
        self.kubectl(
            "annotate", "--overwrite", kind, name, f"reconcile.fluxcd.io/requestedAt={moment}"
        )

    def events(self, name: str = "flags") -> list[dict[str, Any]]:
        """What was said about the objects called `name`."""
        text = self.kubectl("get", "events", "-o", "json")
        found = json.loads(text)["items"]
        return [each for each in found if each["involvedObject"]["name"] == name]


def condition(found: dict[str, Any], kind: str) -> dict[str, Any]:
    """A condition of an object, or nothing."""
    conditions = found.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), {})
