"""Builds the images of the Dockerfile without a registry: by buildah, over a base that mmdebstrap makes of
Debian's packages in the place of the official Python image.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.go import CACHE, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

BASE: Final = "localhost/base"
_TOOLS: Final = ("buildah", "mmdebstrap")
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
# As the slim image is: Python, its headers, `python`, pip, certificates, neither documentation nor bytecode.
_DEBIAN: Final = (
    "--variant=minbase",
    "--include=python3,libpython3-dev,python3-pip,python-is-python3,ca-certificates,usr-is-merged",
    # Otherwise `usrmerge` brings Perl.
    "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
    '--customize-hook=rm "$1"/usr/lib/python3.*/EXTERNALLY-MANAGED',
    '--customize-hook=find "$1"/usr/lib -name __pycache__ -prune -exec rm -r {} +',
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "bookworm",
)


def install_tools() -> None:
    """Install what is missing of Debian's buildah and mmdebstrap. Raises subprocess.SubprocessError or
    OSError.
    """
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if not missing:
        return
    if os.geteuid() != 0:
        raise PermissionError(
            "images are built as root: run `make images` in a container or a machine of its own"
        )
    print(f"==> installing {' and '.join(missing)}, Debian's packages", file=sys.stderr)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", *missing]
    for command in (["apt-get", "-qq", "update"], install):
        subprocess.run(command, env=environment, check=True, stdout=sys.stderr, timeout=600)


def make_base() -> Path:
    """The base as a tar file, made once (half a minute)."""
    digest = hashlib.sha256(repr(_DEBIAN).encode()).hexdigest()
    made = CACHE / f"image-base-{digest[:16]}.tar"
    if not made.is_file():
        print("==> making the images' base of Debian's packages, once", file=sys.stderr)
        made.parent.mkdir(parents=True, exist_ok=True)
        unfinished = made.with_name(f".{os.getpid()}-{made.name}")
        subprocess.run(["mmdebstrap", "--quiet", *_DEBIAN, unfinished], check=True, timeout=900)
        unfinished.replace(made)
    return made


@dataclass(frozen=True, slots=True)
class Images:
    """A store of images in a folder of its own."""

    folder: Path

    def buildah(self, *words: str | Path, seconds: float = 900) -> str:
        """What buildah prints. Raises subprocess.SubprocessError."""
        store: list[str | Path] = ["--root", self.folder / "images", "--runroot", self.folder / "run"]
        done = subprocess.run(
            # Directories and chroot: they work wherever root does, also within a container.
            ["buildah", "--storage-driver=vfs", *store, *words],
            env=os.environ | {"BUILDAH_ISOLATION": "chroot"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=seconds,
        )
        return done.stdout.strip()

    def add_base(self, tar: Path) -> None:
        """Have `tar` as the image BASE."""
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, tar, "/")
        self.buildah("commit", "--quiet", "--rm", container, BASE)

    def build(self, target: str, **arguments: str) -> None:
        """Build a target of the Dockerfile, with build arguments."""
        values = [word for pair in arguments.items() for word in ("--build-arg", "=".join(pair))]
        # pip trusts what this machine trusts.
        trusted = [f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro"] if _CERTIFICATES.is_file() else []
        # A stage out of the cache of this version cannot be mounted: no layers are kept.
        words = ["build", "--quiet", "--layers=false", f"--build-arg=BASE={BASE}", *values, *trusted]
        self.buildah(*words, "--target", target, "--tag", f"localhost/{target}", ROOT)

    def configuration(self, image: str) -> dict[str, Any]:
        """The image's `config`: its user, entry point, environment."""
        parts: dict[str, Any] = json.loads(self.buildah("inspect", "--type", "image", image))
        settings: dict[str, Any] = parts["OCIv1"]["config"]
        return settings

    @contextlib.contextmanager
    def mount(self, image: str) -> Iterator[Path]:
        """The files of an image."""
        container = self.buildah("from", image)
        try:
            yield Path(self.buildah("mount", container))
        finally:
            self.buildah("rm", container)


@contextlib.contextmanager
def image_store() -> Iterator[Images]:
    """An empty store, which is removed at the end."""
    # Not pytest's own folder: it keeps three runs, of more than a gigabyte each.
    with tempfile.TemporaryDirectory(prefix="flagstaff-images-") as folder:
        yield Images(Path(folder))


def total_bytes(root: Path) -> int:
    """What the files below `root` hold; those with several names count once."""
    sizes: dict[int, int] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            state = (Path(folder) / name).lstat()
            sizes[state.st_ino] = state.st_size
    return sum(sizes.values())
