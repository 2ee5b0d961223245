"""The certificate that the port serves, in a file: OpenSSL takes a key from nowhere else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from evaluator.http.server.tls import TlsFiles

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from controller.certificates.renewal import Certificates


class _OwnFiles(TlsFiles):
    """Nobody else writes these."""

    def poll(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing: `refresh` follows each write."""


class ServedCertificate:
    """Certificate and key in one file of `folder`, so that both change at once. Raises OSError."""

    def __init__(self, folder: Path, first: Certificates, client_ca: str | None = None) -> None:
        """`client_ca`: a file of authorities, one of which must have issued the caller's certificate."""
        self._file = folder / "server.pem"
        self._write(first)
        files = _OwnFiles if client_ca is None else TlsFiles
        self.tls = files(self._file, self._file, client_ca)

    def replace(self, certificates: Certificates) -> None:
        """Serve these on connections from now on."""
        self._write(certificates)
        self.tls.refresh()

    def _write(self, certificates: Certificates) -> None:
        beside = self._file.with_suffix(".new")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificates.certificate + certificates.key)
        beside.replace(self._file)
