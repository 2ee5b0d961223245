"""Work on a cluster from the command line, with one message where there is none to work on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from controller.cli.shared.ending import Exit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


def add_cluster_arguments(
    parser: argparse.ArgumentParser, *, of: str = "", timeout: int | None = None
) -> None:
    """--namespace, --kubeconfig, and with a default in seconds --timeout. `of`: the default namespace of a
    verb that is about one object.
    """
    text = f"its namespace (default: {of})" if of else "one namespace (default all)"
    parser.add_argument("-n", "--namespace", default=of, help=text)
    if timeout is not None:
        # Imported here, with all that decides what a flag set is: other verbs need none of it.
        from controller.cli.shared.arguments import seconds

        parser.add_argument(
            "--timeout", type=seconds, default=float(timeout), metavar="TIME",
            help=f"how long to wait, such as 90s or 5m (default {timeout}s)",
        )  # fmt: skip
    parser.add_argument("--kubeconfig", metavar="FILE", help="a kubeconfig's path (default $KUBECONFIG)")


def run_on_cluster(work: Callable[[], Coroutine[Any, Any, T]], *, verb: str = "read") -> T:
    """Run `work` to its end. Raises Exit where there is no cluster, or none that can be `verb` in time."""
    # Imported here: it takes a second or two, in which Ctrl-C finds nothing begun.
    from kubernetes.aio.config.config_exception import ConfigException

    from controller.runtime.reconciling.setbacks import Setback

    try:
        return asyncio.run(work())
    except BrokenPipeError:
        # The reader of our output has closed it; this is no error of the cluster.
        raise
    except Setback as setback:
        raise Exit(f"the cluster cannot be {verb}: {setback.message}{_remedy(setback.message)}") from setback
    except (OSError, ConfigException) as error:
        raise Exit(f"cannot find a cluster: {error}") from error


def _remedy(message: str) -> str:
    """What to do about the API server's refusal, if `message` is one."""
    if " is forbidden: " in message:
        return "; ask for a Role and RoleBinding that allow it (kubectl auth can-i --list shows your rights)"
    if "Unauthorized" in message:
        return "; the credentials of the kubeconfig are not accepted: log in again"
    return ""
