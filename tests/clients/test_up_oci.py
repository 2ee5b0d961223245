"""`flagstaff push` and `flagstaff up oci://…`: processes of their own, and a real registry."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from tests.clients.server import until
from tests.clients.test_up import ofrep
from tests.clients.up import FLAGSTAFF, banner, up
from tests.registry.fixtures import Shelf, registry, repository, shelf

if TYPE_CHECKING:
    from tests.repositories import Repository


__all__ = ["registry", "repository", "shelf"]


def push(shelf: Shelf, repository: Repository) -> str:
    """The digest of what was pushed."""
    command = [FLAGSTAFF, "push", f"{shelf.url}:prod", "--path", str(repository.path), "--insecure"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith(f"{shelf.url}:prod@sha256:")
    return done.stdout.strip().partition("@")[2]


def test_a_push_reaches_a_client_and_so_does_the_next(shelf: Shelf, repository: Repository) -> None:
    first = push(shelf, repository)
    with up(f"{shelf.url}:prod", "--insecure", "--interval", "1s") as running:
        port = running.ready()["ofrep"]
        said = running.revision(first)
        assert ofrep(port)["value"] == "Welcome"
        commit = repository.commit("party", flags__json=banner("party"))
        second = push(shelf, repository)
        change = running.revision(second)
        until(lambda: ofrep(port)["value"] == "Hooray")
        metadata = ofrep(port)["metadata"]
    assert (said["author"], said["subject"]) == ("Ada <ada@example.com>", "first")
    assert (change["revision"], change["changed"], change["subject"]) == (
        f"prod@{second}",
        ["banner"],
        "party",
    )
    assert metadata["flagstaff.dev/revision"] == f"prod@{second}"
    manifest = json.loads(shelf.pusher.manifest(shelf.repository, "prod"))
    annotations = manifest["annotations"]
    assert annotations["org.opencontainers.image.revision"] == f"main@sha1:{commit}"
    assert annotations["org.opencontainers.image.source"] == "https://git.example.com/shop/flags.git"
