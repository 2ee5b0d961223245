"""A registry that wants a login."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from controller.sources.oci_registry import RegistryLogin
from tests.registry.program import run_registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOGIN = RegistryLogin("ada", "correct horse")
# Made by bcrypt of that password; cheap, since it protects nothing.
_PROOF = "$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"


def admit(folder: Path, username: str) -> None:
    """Let in who has this name, with the password of `LOGIN`, and nobody else."""
    (folder / "htpasswd").write_text(f"{username}:{_PROOF}\n")


@contextlib.contextmanager
def guarded_registry(folder: Path) -> Iterator[int]:
    """Its port."""
    admit(folder, LOGIN.username)
    with run_registry(
        folder, auth={"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
    ) as port:
        yield port
