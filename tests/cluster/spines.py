"""The whole way in a namespace of its own: a repository, its server, a FlagSource and a FlagSet that follow
it.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from tests.cluster.objects import Namespace
from tests.cluster.patience import PATIENCE
from tests.git_http import GitServer, git_server
from tests.repositories import Repository
from tests.worlds.flags import flags
from tests.worlds.objects import flag_set, flag_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane


class Spine(Namespace):
    """A namespace with a repository that its FlagSource and FlagSet follow."""

    def __init__(self, plane: Plane, name: str, repository: Repository, server: GitServer) -> None:
        super().__init__(plane, name)
        self.repository = repository
        self.server = server
        self.url = f"{server.url}/{repository.path.name}/.git"

    def push(self, message: str = "a change", **files: str) -> str:
        """Commit, and ask the source to look."""
        commit = self.repository.commit(message, **files)
        self.poke("flagsource")
        return commit

    def wait_applied(self, commit: str, patience: float = PATIENCE) -> dict[str, Any]:
        """The FlagSet once it applied the commit."""
        revision = f"main@sha1:{commit}"
        return self.wait(
            "flagset", lambda each: each["status"].get("lastAppliedRevision") == revision, patience=patience
        )

    def whole(self) -> bool:
        """Whether what is delivered, if anything, is all of one commit."""
        found = self.get("ffc")
        if not found:
            return True
        commit = found["metadata"]["annotations"]["flagstaff.dev/revision"].rpartition(":")[2]
        content = json.loads(self.repository.git("show", f"{commit}:flags.json"))
        return bool(content["flags"].keys() == found["spec"]["flagSpec"]["flags"].keys())


@contextlib.contextmanager
def spine_in(plane: Plane, namespace: str, folder: Path) -> Iterator[Spine]:
    """A repository with its first commit, and objects that follow it; nobody is waited for."""
    repository = Repository(folder / "repository")
    repository.commit("first", flags__json=flags(banner="on"))
    with git_server(folder) as server:
        spine = Spine(plane, namespace, repository, server)
        spine.apply(flag_source(spine.url), flag_set())
        yield spine
