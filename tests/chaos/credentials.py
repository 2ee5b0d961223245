"""Tokens by which controllers and proxies reach the API server, in their kubeconfigs."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.controllers import SYSTEM

if TYPE_CHECKING:
    from tests.cluster.plane import Plane
    from tests.cluster.replica import Replica


class Credentials:
    """Each token is bound to a Secret: the API server refuses it some seconds after that is deleted."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._accounts: dict[str, tuple[str, str, str]] = {}
        self._tokens = 0
        self._secrets: dict[str, str] = {}

    def begin(self, name: str, account: str, replica: Replica, via: str) -> None:
        """Give a replica that has not been started such a token."""
        config = Path(replica.command[replica.command.index("--kubeconfig") + 1])
        self._accounts[name] = (account, config.stem, via)
        assert self.renew(name)

    def revoke(self, name: str) -> None:
        """As where whoever renews tokens is late; nothing while the API server is away."""
        with contextlib.suppress(RuntimeError):
            self._kubectl("delete", "secret", self._secrets[name])

    def renew(self, name: str) -> bool:
        """Write a new token; False where the API server gives none."""
        account, config, via = self._accounts[name]
        self._tokens += 1
        secret = f"token-{name}-{self._tokens}"
        bound = ("--bound-object-kind", "Secret", "--bound-object-name", secret, "--duration", "24h")
        try:
            self._kubectl("create", "secret", "generic", secret)
            token = self._kubectl("create", "token", account, *bound).strip()
        except RuntimeError:
            return False
        self._secrets[name] = secret
        self._plane.config_for(token, config, via)
        return True

    def _kubectl(self, *arguments: str) -> str:
        return self._plane.kubectl(*arguments, "-n", SYSTEM, "--request-timeout=5s")
