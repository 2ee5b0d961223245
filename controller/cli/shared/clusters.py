"""Work on a cluster from the command line, with one message where there is none to work on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from controller.cli.shared.ending import Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


def run_on_cluster(
    work: Callable[[], Coroutine[Any, Any, T]], kubeconfig: str | None, *, verb: str = "read"
) -> T:
    """Run `work` to its end. Raises Ended where there is no cluster, or none that can be `verb` in time."""
    # Imported here: it takes a second or two, in which Ctrl-C finds nothing begun.
    from kubernetes.aio.config.config_exception import ConfigException

    from controller.runtime.reconciling.setbacks import Setback

    try:
        return asyncio.run(work())
    except BrokenPipeError:
        # The reader of our output has gone; the cluster is there.
        raise
    except Setback as setback:
        raise Ended(f"the cluster cannot be {verb}: {setback.message}") from setback
    except (OSError, ConfigException) as error:
        where = f"{kubeconfig}: " if kubeconfig else ""
        raise Ended(f"cannot find a cluster: {where}{error}") from error
