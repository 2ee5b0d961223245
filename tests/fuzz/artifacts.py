"""What registries answer, and layers of strangers: a setback at worst, and nothing outside of the folder."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tempfile
from pathlib import Path
from typing import Final

from controller.api.addresses import DIGEST, parse_address
from controller.artifacts.archive import pack
from controller.local.registries import parse_target
from controller.runtime.setbacks import Setback
from controller.sources.backend import TreeLimits
from controller.sources.oci_manifest import extract, read_manifest
from controller.sources.oci_registry import challenges_of, login_from
from tests.fuzz.target import Target, Wrong

ADDRESS: Final = parse_address("oci://ghcr.io/team/flags")
LIMITS: Final = TreeLimits(entries=100, file_bytes=8_192, total_bytes=64 * 1024, depth=8)
WORDS: Final = (
    '{"layers":[{"mediaType":"a","digest":"sha256:', '","size":1}]',
    '"annotations":{"org.opencontainers.image.created":"', '"manifests":[]', '{"auths":{"ghcr.io":{"auth":"',
    '"username":"ada"', '"password":"word"', "https://ghcr.io/v2/", "ghcr.io/team",
    'Bearer realm="https://h/token"', ',service="s"', "Basic realm=", "oci://", "@sha256:", ":v1", "\\u001b",
    "2026-11-23T02:00:00Z",
)  # fmt: skip


def answer(content: bytes) -> None:
    """Read as each of what people and registries say."""
    text = content.decode("utf-8", "replace")
    with contextlib.suppress(Setback):
        address, _ = parse_target(f"oci://{text}")
        if parse_address(str(address)) != address:
            raise Wrong(f"{address} is not what it says")
    if not all(name == name.lower() for name in challenges_of([text])):
        raise Wrong("a scheme that would not be found by its name")
    with contextlib.suppress(Setback):
        login = login_from("it", content, ADDRESS)
        if login is not None and not (login.username and login.password and login.basic.isascii()):
            raise Wrong("half a login")
    with contextlib.suppress(Setback):
        manifest = read_manifest(content)
        shown = [*manifest.metadata.values(), manifest.summary]
        if not DIGEST.fullmatch(manifest.layer.digest) or not all(each.isprintable() for each in shown):
            raise Wrong(f"not fit to be used or shown: {manifest!r}")
        json.dumps(shown).encode()


def layer(content: bytes) -> None:
    """A tar, compressed here, since no mutation finds a checksum."""
    with tempfile.TemporaryDirectory(prefix="flagstaff-fuzz-") as outer:
        into = Path(outer) / "into"
        into.mkdir()
        with contextlib.suppress(Setback):
            skipped = extract(io.BytesIO(gzip.compress(content, 1)), into, LIMITS)
            if not all(": " in each for each in skipped):
                raise Wrong(f"left out without a reason: {skipped!r}")
        # What was written is fit to be an artifact.
        pack(into)
        if [each.name for each in Path(outer).iterdir()] != ["into"]:
            raise Wrong("something was written outside of the folder")


TARGETS = {
    "artifact": Target(answer, WORDS, 2_048),
    "layer": Target(layer, ("../", "/etc/", "ustar", "\x001", "\x002", "./", "x" * 100, b"\0" * 12), 8_192),
}
