"""Artifacts as other tools push them, byte for byte, and a pusher that is not ours."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import urllib.request
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
FLUX_CONTENT = "application/vnd.cncf.flux.content.v1.tar+gzip"
ORAS_FILE = "application/vnd.oci.image.layer.v1.tar"
ORAS_FOLDER = "application/vnd.oci.image.layer.v1.tar+gzip"
_NEVER = "0001-01-01T00:00:00Z"


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True)
class Artifact:
    manifest: bytes
    blobs: tuple[bytes, ...]

    @property
    def digest(self) -> str:
        return sha256(self.manifest)


def tar(files: Mapping[str, str | bytes], *others: tarfile.TarInfo, prefix: str = "") -> bytes:
    """Folders before what is in them, as Flux and oras walk; then `others`, as they are."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as made:
        folders: set[str] = set()
        for name, text in sorted(files.items()):
            path = f"{prefix}{name}"
            parts = path.split("/")
            for length in range(1, len(parts)):
                folder = "/".join(parts[:length])
                if folder not in folders:
                    folders.add(folder)
                    entry = tarfile.TarInfo(folder)
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    made.addfile(entry)
            content = text.encode() if isinstance(text, str) else text
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644
            made.addfile(entry, io.BytesIO(content))
        for other in others:
            made.addfile(other)
    return out.getvalue()


def flux(files: Mapping[str, str | bytes], *others: tarfile.TarInfo, **annotations: str) -> Artifact:
    """As `flux push artifact --path ./files --source … --revision …` does."""
    return flux_of(tar(files, *others), annotations=annotations)


def flux_of(
    plain: bytes, layer: bytes | None = None, *, annotations: Mapping[str, str] = MappingProxyType({})
) -> Artifact:
    layer = gzip.compress(plain, mtime=0) if layer is None else layer
    config = _go({
        "architecture": "",
        "created": _NEVER,
        "history": [{"created": _NEVER}],
        "os": "",
        "rootfs": {"type": "layers", "diff_ids": [sha256(plain)]},
        "config": {},
    })  # fmt: skip
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": "application/vnd.cncf.flux.config.v1+json",
            "size": len(config),
            "digest": sha256(config),
        },
        "layers": [{"mediaType": FLUX_CONTENT, "size": len(layer), "digest": sha256(layer)}],
    }
    if annotations:
        manifest["annotations"] = {
            f"org.opencontainers.image.{key}": annotations[key] for key in sorted(annotations)
        }
    return Artifact(_go(manifest), (config, layer))


def index(*manifests: tuple[Artifact, Mapping[str, str] | None]) -> bytes:
    """As `docker buildx imagetools create` does; each manifest with its platform."""
    listed = [
        {
            "mediaType": MANIFEST,
            "digest": artifact.digest,
            "size": len(artifact.manifest),
            **({"platform": dict(platform)} if platform is not None else {}),
        }
        for artifact, platform in manifests
    ]
    return _go({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed})


def oras_files(files: Mapping[str, str]) -> Artifact:
    """As `oras push HOST/REPOSITORY:TAG a.json b.json` does."""
    blobs = [text.encode() for text in files.values()]
    layers = [
        {
            "mediaType": ORAS_FILE,
            "digest": sha256(blob),
            "size": len(blob),
            "annotations": {"org.opencontainers.image.title": name},
        }
        for name, blob in zip(files, blobs, strict=True)
    ]
    return _oras(layers, blobs)


def oras_folder(name: str, files: Mapping[str, str]) -> Artifact:
    """As `oras push HOST/REPOSITORY:TAG ./name` does."""
    plain = tar(files, prefix=f"{name}/")
    layer = gzip.compress(plain, mtime=0)
    described = {
        "mediaType": ORAS_FOLDER,
        "digest": sha256(layer),
        "size": len(layer),
        "annotations": {
            "io.deis.oras.content.digest": sha256(plain),
            "io.deis.oras.content.unpack": "true",
            "org.opencontainers.image.title": name,
        },
    }
    return _oras([described], [layer])


def _oras(layers: list[dict[str, Any]], blobs: list[bytes]) -> Artifact:
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": "application/vnd.unknown.artifact.v1",
        "config": {
            "mediaType": "application/vnd.oci.empty.v1+json",
            "digest": sha256(b"{}"),
            "size": 2,
            "data": "e30=",
        },
        "layers": layers,
        "annotations": {"org.opencontainers.image.created": "2026-11-23T02:00:00Z"},
    }
    return Artifact(_go(manifest), (b"{}", *blobs))


def _go(value: object) -> bytes:
    """As Go's encoding/json writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass
class Pusher:
    """Writes to a registry by plain HTTP requests."""

    url: str
    """Of the registry: `http://127.0.0.1:…`."""
    headers: dict[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None

    def push(self, repository: str, tag: str, artifact: Artifact) -> str:
        """The digest of its manifest."""
        for blob in artifact.blobs:
            begun = self._ask("POST", f"/v2/{repository}/blobs/uploads/")
            place = begun.headers["Location"]
            self._ask("PUT", f"{place}{'&' if '?' in place else '?'}digest={sha256(blob)}", blob)
        self._ask("PUT", f"/v2/{repository}/manifests/{tag}", artifact.manifest, MANIFEST)
        return artifact.digest

    def push_index(self, repository: str, tag: str, content: bytes) -> str:
        """Its digest; the manifests in it must be there."""
        self._ask("PUT", f"/v2/{repository}/manifests/{tag}", content, INDEX)
        return sha256(content)

    def tag(self, repository: str, old: str, new: str) -> None:
        """Have `new`, too, point at what `old`, a tag or a digest, points at."""
        self._ask("PUT", f"/v2/{repository}/manifests/{new}", self.manifest(repository, old), MANIFEST)

    def manifest(self, repository: str, reference: str) -> bytes:
        """Of a tag or digest."""
        return self._ask("GET", f"/v2/{repository}/manifests/{reference}").content

    def blob(self, repository: str, digest: str) -> bytes:
        """A layer's content."""
        return self._ask("GET", f"/v2/{repository}/blobs/{digest}").content

    def delete(self, repository: str, reference: str) -> None:
        """A tag, or by its digest a manifest."""
        self._ask("DELETE", f"/v2/{repository}/manifests/{reference}")

    def _ask(
        self, method: str, place: str, body: bytes | None = None, kind: str = "application/octet-stream"
    ) -> _Answer:
        url = place if "://" in place else self.url + place
        headers = {"Content-Type": kind, "Accept": MANIFEST, **self.headers}
        request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=60, context=self.tls) as answer:  # noqa: S310 - loopback
            return _Answer(dict(answer.headers.items()), answer.read())


@dataclass(frozen=True)
class _Answer:
    headers: dict[str, str]
    content: bytes
