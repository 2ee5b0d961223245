"""The Secret of a server's certificates. It is there before us: we may replace it, and create none."""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from controller.kube.answers import expected
from controller.kube.paths import path_of
from controller.runtime.clock import now

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.kube.client import Cluster


class CertificateSecret:
    """Reading and writing of the keeper's Store."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._path = path_of("v1", "Secret", namespace, name)
        self._seen: dict[str, Any] = {}
        self.now = now()
        """As Store has it."""

    async def read(self) -> Mapping[str, bytes] | None:
        """As Store has it."""
        answer = await self._cluster.request("GET", self._path)
        self.now = answer.date or now()
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        self._seen = expected(answer, "Secret", self._name)
        try:
            return {name: base64.b64decode(text) for name, text in (self._seen.get("data") or {}).items()}
        except (binascii.Error, ValueError):
            return {}

    async def write(self, data: Mapping[str, bytes]) -> bool:
        """As Store has it."""
        encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
        body = {**self._seen, "data": {**(self._seen.get("data") or {}), **encoded}}
        answer = await self._cluster.request("PUT", self._path, {}, body)
        if answer.status == HTTPStatus.CONFLICT:
            return False
        expected(answer, "Secret", self._name)
        return True
