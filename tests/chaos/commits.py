"""Commits that flow while things break, and what each of them says."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from tests.repositories import Repository

_PAUSES: Final = (0.3, 1.5)
_LARGE: Final = 70_000
_HELD_EVERY, _UNREADABLE_EVERY, _REPLACED_EVERY, _OTHER_EVERY = 7, 11, 13, 17


@dataclass(frozen=True, slots=True)
class Content:
    """What the definitions of a commit come to: `number` and `twin` are this number, and so is `careful`
    unless its own definition is broken.
    """

    number: int
    broken: bool = False


def document(content: Content) -> str:
    """The file of a commit."""
    flags = {key: _flag(content.number) for key in ("number", "twin", "careful")}
    # So much that a small volume cannot keep many versions.
    flags["large"] = _flag("x" * _LARGE)
    if content.broken:
        flags["careful"]["defaultVariant"] = "nowhere"
    return json.dumps({"flags": flags})


def _flag(number: int | str) -> dict[str, Any]:
    return {"state": "ENABLED", "variants": {"now": number}, "defaultVariant": "now"}


class Commits:
    """Numbers that only rise: good ones, ones with one broken flag, files that cannot be read, commits that
    change no flag, and commits that take the place of the one before.
    """

    def __init__(self, repository: Repository, chance: random.Random) -> None:
        self._repository, self._chance = repository, chance
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.by_id: dict[str, Content | None] = {}
        """None where the definitions cannot be read."""
        self.newest = Content(0)
        """The last content that can be served."""
        self.lock = threading.Lock()
        """Held while a commit is made that `by_id` does not name yet."""
        self.total = 0

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> str:
        """Stop, and let one good commit be the last; its id."""
        self._over.set()
        self._thread.join()
        return self.good()

    def good(self, *, broken: bool = False) -> str:
        """One more number."""
        content = Content(self.newest.number + 1, broken)
        return self._commit(content, document(content))

    def known_commits(self) -> Mapping[str, Content | None]:
        """Every commit so far."""
        with self.lock:
            return dict(self.by_id)

    def _run(self) -> None:
        while not self._over.wait(self._chance.uniform(*_PAUSES)):
            number = self.total + 1
            if number % _OTHER_EVERY == 0:
                self._commit(self.newest, None)
            elif number % _REPLACED_EVERY == 0:
                self._repository.git("reset", "-q", "--hard", "HEAD~1")
                self.good()
            elif number % _UNREADABLE_EVERY == 0:
                self._commit(None, document(self.newest)[:-5])
            else:
                self.good(broken=number % _HELD_EVERY == 0)

    def _commit(self, content: Content | None, text: str | None) -> str:
        with self.lock:
            self.total += 1
            files = {"README__md": f"{self.total}\n"} if text is None else {"flags__json": text}
            # What follows a file that cannot be read, and changes another one, cannot be read either.
            if text is None and self._repository.git("show", "HEAD:flags.json") != document(self.newest):
                content = None
            commit = self._repository.commit(f"number {self.total}", **files)
            self.by_id[commit] = content
            self.newest = content or self.newest
            return commit
