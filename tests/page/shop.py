"""The example's repository with some commits, and `flagstaff up` that serves it."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.clients.up import up
from tests.repositories import ENVIRONMENT, Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "gitops-repo"
FLAGS: Final = "flags/base/checkout.yaml"
_LAYERS: Final = ("--path", "flags/base", "--path", "flags/overlays/production")


class Shop:
    """A repository with the flags of a shop, and where its page is."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.origin = ""
        self.ofrep = 0

    def change(self, old: str, new: str, subject: str, *, author: str = "Ada", at: str = "") -> str:
        """Commit a change of the flags; the commit."""
        file = self.repository.path / FLAGS
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")
        return commit(self.repository, subject, author=author, at=at)


def commit(repository: Repository, subject: str, *, author: str = "Ada", at: str = "") -> str:
    """Commit everything as somebody, at a time."""
    person = {"NAME": author, "EMAIL": f"{author.lower()}@example.com", **({"DATE": at} if at else {})}
    given = {f"GIT_{who}_{name}": text for who in ("AUTHOR", "COMMITTER") for name, text in person.items()}
    for command in (["add", "-A"], ["commit", "-q", "-m", subject]):
        subprocess.run(["git", *command], cwd=repository.path, env={**ENVIRONMENT, **given}, check=True)
    return repository.git("rev-parse", "HEAD")


@contextlib.contextmanager
def shop(folder: Path) -> Iterator[Shop]:
    """The example at its fourth commit, served, with `legacy-cart` set by hand."""
    repository = Repository(folder / "flags")
    shutil.copytree(EXAMPLE, repository.path, dirs_exist_ok=True)
    repository.git("remote", "add", "origin", "git@github.com:shop/flags.git")
    commit(repository, "Flags of the checkout", at="2026-03-02T09:00:00Z")
    made = Shop(repository)
    made.change(
        "{owner: checkout, jira: SHOP-101}", "{owner: web, description: The checkout of the new shop}",
        "Describe the new checkout (#12)", author="Grace", at="2026-03-20T16:20:00Z",
    )  # fmt: skip
    made.change(
        "few: 10", "few: 20", "Twenty items for everybody (#31)", author="Linus", at="2026-04-01T08:00:00Z"
    )
    with up(repository, *_LAYERS, "--override", "legacy-cart=on") as running:
        ports = running.ready()
        made.origin, made.ofrep = f"http://localhost:{ports['management']}", ports["ofrep"]
        yield made
