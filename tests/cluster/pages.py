"""`flagstaff page` as a process of its own, with the rights of its service account; and who looks at it."""

from __future__ import annotations

import contextlib
import os
import re
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Final

from tests.cluster.api import Api
from tests.cluster.controllers import FLAGSTAFF, SYSTEM
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT
from tests.cluster.replica import Replica, run_replica
from tests.worlds.objects import reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.objects import Namespace
    from tests.cluster.plane import Plane

_PORTS: Final = re.compile(r"listening: page (\d+), management (\d+)")
RIGHTS: Final = ROOT / "deploy/components/page/rbac.yaml"


class PageProcess(Replica):
    """One replica of the page."""

    def __init__(self, plane: Plane, folder: Path, *arguments: str) -> None:
        super().__init__(folder, "page")
        plane.kubectl("apply", "--server-side", "-f", str(RIGHTS))
        token = Api(plane).token(SYSTEM, "flagstaff-page")
        config = plane.config_for(token, f"page-{os.getpid()}-{time.monotonic_ns()}")
        self.command = [
            FLAGSTAFF, "page", "--kubeconfig", str(config), "--host", "127.0.0.1", "--page-port", "0",
            "--management-port", "0", *arguments,
        ]  # fmt: skip
        self.page = 0

    def start(self) -> None:
        """Start, and wait until it is ready."""
        super().start()
        self.page, self.management = self.read_ports(_PORTS)
        within(lambda: self.ask("/readyz")[0] == 200, self.log_text)

    @property
    def origin(self) -> str:
        """Scheme, host and port of the page."""
        return f"http://127.0.0.1:{self.page}"

    @property
    def url(self) -> str:
        """The page's address."""
        return f"{self.origin}/ui"

    def get(self, path: str, token: str = "", scheme: str = "Bearer") -> tuple[int, str]:
        """Status and text of a view, as a login proxy asks for it."""
        headers = {"Authorization": f"{scheme} {token}"} if token else {}
        request = urllib.request.Request(f"{self.url}{path}", headers=headers)  # noqa: S310 - loopback
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@contextlib.contextmanager
def page(plane: Plane, folder: Path, *arguments: str) -> Iterator[PageProcess]:
    """A page for as long as the block lasts."""
    with run_replica(PageProcess(plane, folder, *arguments)) as process:
        yield process


def token_of(space: Namespace, account: str = "viewer") -> str:
    """The token of a viewer of a namespace, who is made for it."""
    space.apply(*reader(account, flag_sets=True))
    return Api(space.plane).token(space.name, account)


class OwnPage(Replica):
    """`flagstaff page --open` of a user, whose browser writes down what it is to open."""

    def __init__(self, config: Path, folder: Path, *arguments: str) -> None:
        super().__init__(folder, "own-page")
        self.asked = folder / "asked"
        program = folder / "browser"
        lines = (
            "#!/bin/sh",
            'file="${1#file://}"',
            f'stat -c %a "$file" > {self.asked}.new',
            f'cat "$file" >> {self.asked}.new',
            f"mv {self.asked}.new {self.asked}",
        )
        program.write_text("\n".join(lines))
        program.chmod(0o700)
        self.command = [
            "env", f"BROWSER={program}", FLAGSTAFF, "page", "--open", "--kubeconfig", str(config), *arguments,
        ]  # fmt: skip

    def opened_file(self) -> tuple[str, str, str]:
        """Name, port and permissions of the file that the browser opened."""
        within(self.asked.exists, self.log_text)
        mode, _, content = self.asked.read_text().partition("\n")
        found = re.search(r"http://(\w+\.localhost):(\d+)/ui", content)
        assert found is not None, content
        return found[1], found[2], mode
