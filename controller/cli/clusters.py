"""Which cluster and namespace a verb is about, and one message where there is none to work on."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from controller.cli.printing import OK, PROBLEM, USAGE, Exit, printable, progress
from controller.runtime.setbacks import Setback

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine, Sequence


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterScope:
    """A cluster, and one of its namespaces or all."""

    kubeconfig: str | None = None
    """A kubeconfig's path; None: $KUBECONFIG, or the default file, or the pod's service account."""
    context: str | None = None
    """A context of the kubeconfig; None: its current one."""
    namespace: str | None = None
    """None: the namespace of the context."""
    everywhere: bool = False
    """All namespaces."""


def add_cluster_arguments(
    parser: argparse.ArgumentParser, *, lists: bool = False, timeout: int | None = None, several: bool = False
) -> None:
    """--namespace, --context, --kubeconfig; for a verb that lists objects --all-namespaces; and with a
    default in seconds --timeout. `several`: --context may be repeated.
    """
    namespace = parser.add_mutually_exclusive_group()
    namespace.add_argument(
        "-n", "--namespace", metavar="NS", help="the namespace (default: the one of the kubeconfig's context)"
    )
    if lists:
        namespace.add_argument(
            "-A", "--all-namespaces", action="store_true", help="all namespaces of the cluster"
        )
    if timeout is not None:
        # Imported here, with all that decides what a flag set is: other verbs need none of it.
        from controller.cli.arguments import seconds

        parser.add_argument(
            "--timeout", type=seconds, default=float(timeout), metavar="TIME",
            help=f"how long to wait, such as 90s or 5m (default {timeout}s)",
        )  # fmt: skip
    add_kubeconfig_arguments(parser, several=several)


def add_objects_arguments(parser: argparse.ArgumentParser, kinds: str) -> None:
    """KIND NAME..., or KIND/NAME..., for `named_objects`; `kinds` is the help text."""
    parser.add_argument("kind", metavar="KIND", help=f"{kinds}; or KIND/NAME...")
    parser.add_argument("names", metavar="NAME", nargs="*", help="the objects' names")


def named_objects(options: argparse.Namespace) -> tuple[str, list[str]]:
    """(kind, names) of the words of `add_objects_arguments`. Raises Exit for a mixture of both forms, and for
    several kinds.
    """
    words = [options.kind, *options.names]
    pairs = [word.partition("/") for word in words]
    if not any(slash for _, slash, _ in pairs):
        return options.kind, options.names
    if len({kind.lower() for kind, _, _ in pairs}) > 1 or not all(kind and name for kind, _, name in pairs):
        raise Exit(f"{' '.join(words)}: write KIND NAME..., or KIND/NAME... of one kind", USAGE)
    return pairs[0][0], [name for _, _, name in pairs]


def named_object(options: argparse.Namespace) -> tuple[str, str]:
    """(kind, name) where a verb is about one object. Raises Exit for none and for several."""
    kind, names = named_objects(options)
    if len(names) != 1:
        raise Exit(f"name one object: {kind} NAME, or {kind}/NAME", USAGE)
    return kind, names[0]


def add_selector_argument(parser: argparse.ArgumentParser) -> None:
    """-l and --selector."""
    parser.add_argument(
        "-l", "--selector", default="", metavar="LABELS", help="only objects with such labels: app=shop"
    )


def add_since_argument(parser: argparse.ArgumentParser) -> None:
    """--since, in seconds; None: from the beginning."""
    # Imported here, as for --timeout.
    from controller.cli.arguments import seconds

    parser.add_argument(
        "--since", type=seconds, metavar="TIME", help="only what is newer, such as 90s, 5m or 1h30m"
    )


def add_kubeconfig_arguments(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """--context and --kubeconfig, of verbs that are about no namespace."""
    text = "a context of the kubeconfig (default: its current one)"
    if several:
        parser.add_argument(
            "--context", metavar="NAME", action="append", dest="cluster_contexts", default=[],
            help=f"{text}; repeat it to read clusters side by side",
        )  # fmt: skip
    else:
        parser.add_argument("--context", metavar="NAME", help=text)
    parser.add_argument("--kubeconfig", metavar="FILE", help="a kubeconfig's path (default $KUBECONFIG)")


def scope_of(options: argparse.Namespace) -> ClusterScope:
    """The scope that the options of `add_cluster_arguments` name."""
    return scopes_of(options)[0]


def scopes_of(options: argparse.Namespace) -> list[ClusterScope]:
    """The same of each `--context`, where several may be named."""
    contexts = [*dict.fromkeys(getattr(options, "cluster_contexts", ()))] or [
        getattr(options, "context", None)
    ]
    return [
        ClusterScope(
            options.kubeconfig,
            context,
            getattr(options, "namespace", None),
            getattr(options, "all_namespaces", False),
        )
        for context in contexts
    ]


@dataclass(slots=True)
class SeveralClusters(Generic[T]):
    """Reads several clusters at once. One that fails does not keep the others from being shown."""

    scopes: Sequence[ClusterScope]
    read: Callable[[ClusterScope], Coroutine[Any, Any, T]]
    failures: dict[str, str] = field(default_factory=dict)
    """Why clusters could not be read the last time, by context."""

    async def read_all(self) -> list[tuple[str, T]]:
        """Each context that can be read, with what was read; failures are printed when they change. Raises
        Exit where no cluster can be read.
        """
        before, self.failures = self.failures, {}
        answers = await asyncio.gather(*map(self._read_one, self.scopes))
        for context, failure in self.failures.items():
            if before.get(context) != failure:
                print(printable(f"flagstaff: {context}: {failure}"), file=sys.stderr)
        if len(self.failures) == len(self.scopes):
            raise Exit("none of the clusters can be read")
        return [answer for answer in answers if answer is not None]

    @property
    def code(self) -> int:
        """The exit code: 1 where a cluster could not be read the last time."""
        return PROBLEM if self.failures else OK

    async def _read_one(self, scope: ClusterScope) -> tuple[str, T] | None:
        from kubernetes.aio.config.config_exception import ConfigException

        context = scope.context or ""
        try:
            return context, await self.read(scope)
        except Exit as failure:
            self.failures[context] = str(failure)
        except (Setback, OSError, ConfigException) as error:
            self.failures[context] = str(_failure(error, "read"))
        return None


def run_on_cluster(work: Callable[[], Coroutine[Any, Any, T]], *, verb: str = "read", doing: str = "") -> T:
    """Run `work` to its end. Raises Exit where there is no cluster, or none that can be `verb` in time. On a
    terminal, what it is `doing` is shown after a second; empty for work that prints by itself.
    """
    # Imported here: it takes a second or two, in which Ctrl-C finds nothing begun.
    from kubernetes.aio.config.config_exception import ConfigException

    try:
        with progress(doing):
            return asyncio.run(work())
    except BrokenPipeError:
        # The reader of our output has closed it; this is no error of the cluster.
        raise
    except (Setback, OSError, ConfigException) as error:
        raise _failure(error, verb) from error


def _failure(error: Exception, verb: str) -> Exit:
    if isinstance(error, Setback):
        return Exit(f"the cluster cannot be {verb}: {error.message}{_remedy(error.message)}")
    return Exit(f"cannot find a cluster: {error}")


def _remedy(message: str) -> str:
    """What to do about the API server's refusal, if `message` is one."""
    if " is forbidden: " in message:
        return "; ask for a Role and RoleBinding that allow it (kubectl auth can-i --list shows your rights)"
    if "Unauthorized" in message:
        return "; the credentials of the kubeconfig are not accepted: log in again"
    return ""
