"""Certificates of CAs that live as long as the tests, in files as a server reads them."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import trustme

from evaluator.http.sockets import TlsFiles

if TYPE_CHECKING:
    from pathlib import Path


@cache
def authority(name: str = "ours") -> trustme.CA:
    return trustme.CA(organization_name=name)


@cache
def issue(name: str = "first", by: str = "ours") -> trustme.LeafCert:
    """A certificate for localhost; each name has one of its own."""
    return authority(by).issue_cert("localhost", "127.0.0.1", common_name=name)


def certificate_of(leaf: trustme.LeafCert) -> bytes:
    return leaf.cert_chain_pems[0].bytes()


def key_of(leaf: trustme.LeafCert) -> bytes:
    return leaf.private_key_pem.bytes()


def ca_of(name: str = "ours") -> bytes:
    return authority(name).cert_pem.bytes()


@dataclass(frozen=True)
class Files:
    """`tls.crt`, `tls.key` and `ca.crt` in a folder."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "tls.crt"

    @property
    def key(self) -> Path:
        return self.folder / "tls.key"

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    def open(self, *, asks_clients: bool = False) -> TlsFiles:
        return TlsFiles(self.certificate, self.key, self.ca if asks_clients else None)

    def write(self, leaf: trustme.LeafCert, ca: str = "ours") -> Files:
        """In place."""
        self.certificate.write_bytes(certificate_of(leaf))
        self.key.write_bytes(key_of(leaf))
        self.ca.write_bytes(ca_of(ca))
        return self

    def rename(self, leaf: trustme.LeafCert, ca: str = "ours") -> None:
        """By new files that take the place of the old ones."""
        (self.folder / "new").mkdir()
        written = Files(self.folder / "new").write(leaf, ca)
        for old, new in (
            (self.key, written.key),
            (self.certificate, written.certificate),
            (self.ca, written.ca),
        ):
            new.replace(old)
        (self.folder / "new").rmdir()

    def mount(self, leaf: trustme.LeafCert, ca: str = "ours") -> Files:
        """As Kubernetes mounts a Secret: links to `..data`, itself a link that is replaced."""
        version = self.folder / f"..{len(list(self.folder.iterdir()))}"
        version.mkdir()
        written = Files(version).write(leaf, ca)
        (self.folder / "..new").symlink_to(version.name)
        os.replace(self.folder / "..new", self.folder / "..data")
        for path in (written.certificate, written.key, written.ca):
            if not (self.folder / path.name).is_symlink():
                (self.folder / path.name).symlink_to(f"..data/{path.name}")
        return self


def client(*alpn: str, shows: trustme.LeafCert | None = None, trusts: str = "ours") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority(trusts).configure_trust(context)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if shows is not None:
        shows.configure_cert(context)
    return context
