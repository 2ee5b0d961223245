"""What is asked about a spine's evaluators: of its objects, and of the command line."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.controllers import FLAGSTAFF

if TYPE_CHECKING:
    from tests.cluster.plane import Plane
    from tests.cluster.spines import Spine

NAMES: Final = ("checkout-1", "checkout-2", "checkout-3")


def followed_source(target: str, namespace: str, name: str = "flags") -> dict[str, Any]:
    """An evaluator's source: one flag set, from the proxy at `target`."""
    return {"uri": target, "selector": f"{namespace}/{name}", "provider": "grpc"}


def wait_served(spine: Spine, text: str, kind: str = "ffc") -> dict[str, Any]:
    """The object once its status counts so: `3/3`."""
    return spine.wait(kind, lambda found: found["status"].get("served") == text)


def flagstaff(plane: Plane, *words: str) -> tuple[int, str]:
    """Exit code and all that a verb prints."""
    done = subprocess.run(
        [FLAGSTAFF, *words, "--kubeconfig", str(plane.kubeconfig)],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def wait(spine: Spine, what: str, revision: str, *words: str) -> tuple[int, str]:
    """`flagstaff wait` in the spine's namespace."""
    return flagstaff(spine.plane, "wait", what, "-n", spine.name, "--revision", revision, *words)
