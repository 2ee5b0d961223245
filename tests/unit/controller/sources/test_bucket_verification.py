"""`spec.verify` of a bucket on a real S3 server, with openssl's keys: what is not signed is never stored."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.fields import InvalidSpecError, read
from controller.api.flagsource import FlagSourceSpec
from controller.api.meta import ACCEPT_REVISION, SIGNED_AT, VERIFIED_BY
from controller.artifacts.archive import unpack
from controller.runtime.clock import now
from controller.sources.bucket_backend import call_here
from controller.sources.bucket_factory import BucketFactory
from controller.sources.bucket_listing import MANIFEST, SIGNATURE
from evaluator.host.times import precise_timestamp
from tests.registry.signing import BUNDLE, Key, sign_folder
from tests.s3 import LOGIN, S3, manifest
from tests.signing import run
from tests.worlds.sources import Verified

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controller.api.source_spec import BucketSpec
    from controller.sources.backend import BackendFactory, FetchRequest
    from controller.sources.bucket_backend import BucketBackend

GENERATE = {
    "ecdsa": ("EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
    "rsa": ("RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
    "ed25519": ("ED25519",),
}
REFUSED = "InvalidBucketSignature"
FILES = {"flags.json": '{"flags": {}}', "deep/ä b.yaml": "flags: {}\n", "empty.txt": ""}


PAGE = Path("docs/verification.md").read_text(encoding="utf-8")


class InProcess(BucketFactory):
    """Asks stores itself: a helper process takes a second to start."""

    async def open(self, spec: BucketSpec, look: FetchRequest) -> BucketBackend:
        return replace(await super().open(spec, look), call=call_here)


class Signed(Verified):
    """One FlagSource of the objects below `checkout/`, the folder that they are put there from, and a key."""

    def __init__(self, root: Path, store: S3, kind: str = "ecdsa") -> None:
        self.authors, self.helped = True, False
        super().__init__(root, "")
        self.store = store
        self.spec = {
            "interval": "10m",
            "bucket": manifest(store, prefix="checkout/"),
            "verify": {"secretRef": {"name": "trusted"}},
        }
        self.folder = root / "folder"
        for name, text in FILES.items():
            self.write(name, text)
        self.private, public = self.make_key("ci", kind)
        self.trusted = {"ci.pub": public}

    def make_key(self, name: str, kind: str = "ecdsa") -> tuple[Path, bytes]:
        path = self.root / f"{name}.pem"
        run("openssl", "genpkey", "-algorithm", *GENERATE[kind], "-out", str(path))
        return path, run("openssl", "pkey", "-in", str(path), "-pubout")

    def backend_factory(self) -> tuple[str, BackendFactory[Any]]:
        return "bucket", (BucketFactory if self.helped else InProcess)(self.secret, authors=self.authors)

    async def secret(self, namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
        if name == "bucket":
            return {key: text.encode() for key, text in LOGIN.items()}
        return await super().secret(namespace, name, account)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def sign(self, key: Path | None = None) -> None:
        private = Key(pem=(key or self.private).read_bytes())
        sign_folder(self.folder, private, precise_timestamp(now()))

    def put(self) -> None:
        """The bucket holds what the folder holds."""
        shutil.rmtree(self.store.folder / "checkout", ignore_errors=True)
        for path in self.folder.rglob("*"):
            if path.is_file():
                name = path.relative_to(self.folder).as_posix()
                self.store.write(f"checkout/{name}", path.read_text(encoding="utf-8"))

    def publish(self, text: str) -> None:
        """`flags.json` holds `text`, signed."""
        self.write("flags.json", text)
        self.sign()
        self.put()

    def sign_as(self, signed_at: str) -> None:
        """As another clock says, with a manifest in JSON."""
        files = {
            name: f"sha256:{hashlib.sha256(text.encode()).hexdigest()}" for name, text in self.texts.items()
        }
        content = {"type": "flagstaff.dev/manifest/v1", "signedAt": signed_at, "files": files}
        (self.folder / MANIFEST).write_text(json.dumps(content))
        made = run("openssl", "dgst", "-sha256", "-sign", str(self.private), str(self.folder / MANIFEST))
        (self.folder / SIGNATURE).write_text(base64.b64encode(made).decode())

    @property
    def texts(self) -> dict[str, str]:
        """What the folder holds beside the proof."""
        paths = [path for path in self.folder.rglob("*") if path.is_file() and not path.match(f"{MANIFEST}*")]
        return {path.relative_to(self.folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}

    @property
    def objects(self) -> dict[str, str]:
        """What the artifact holds beside the proof."""
        found = self.storages.read(self.status["artifact"]["path"])
        assert found is not None
        named = {key.removeprefix("checkout/"): content for key, content in unpack(found).items()}
        return {key: content.decode() for key, content in named.items() if key not in {MANIFEST, SIGNATURE}}

    async def refusal(self) -> str:
        """The message of what is refused; what was stored stays."""
        before = dict(self.status["artifact"])
        assert await self.look() == REFUSED
        assert self.condition("SourceVerified")[:2] == ("False", REFUSED)
        assert self.status["artifact"] == before
        return self.condition("SourceVerified")[2]


@pytest.fixture
async def source(tmp_path: Path, store: S3) -> AsyncIterator[Signed]:
    made = Signed(tmp_path, store)
    yield made
    await made.close()


@pytest.fixture
async def served(source: Signed) -> Signed:
    """A source with signed objects in its storage."""
    source.publish("1")
    assert await source.look() == "Succeeded"
    return source


@pytest.mark.parametrize("kind", GENERATE)
async def test_a_signed_folder_is_stored_and_names_its_signer(tmp_path: Path, store: S3, kind: str) -> None:
    source = Signed(tmp_path, store, kind)
    source.sign()
    source.put()
    assert await source.look() == "Succeeded"
    assert source.objects == FILES
    assert source.metadata[VERIFIED_BY].startswith("ci (cosign SHA256:")
    assert source.metadata[VERIFIED_BY] in source.condition("SourceVerified")[2]
    first = (source.folder / MANIFEST).read_text(encoding="utf-8").partition("\n")[0]
    assert first == f"# flagstaff.dev/manifest/v1 {source.metadata[SIGNED_AT]}"
    downloads = store.downloads
    assert await source.look() == "Succeeded"
    assert store.downloads == downloads
    await source.close()


async def test_a_folder_signed_by_the_commands_of_the_page_is_stored(source: Signed) -> None:
    commands = [line for line in PAGE.splitlines() if "flagstaff.manifest" in line and line.startswith("  ")]
    find, date, openssl = (line for line in commands if "cosign" not in line)
    script = f"{find}\n{date}\n{openssl.replace('../ci.key', str(source.private))}"
    run("sh", "-euc", f"cd {source.folder}\n{script}")
    source.put()
    assert await source.look() == "Succeeded", source.condition("SourceVerified")


async def test_a_manifest_in_json_that_openssl_signed_is_stored(source: Signed) -> None:
    source.sign_as("2026-01-02T03:04:05.678Z")
    source.put()
    assert await source.look() == "Succeeded"
    assert source.metadata[SIGNED_AT] == "2026-01-02T03:04:05.678Z"


async def test_a_manifest_signed_by_a_bundle_of_cosign_is_stored(source: Signed) -> None:
    source.sign()
    signature = (source.folder / SIGNATURE).read_text()
    message = {"messageDigest": {"algorithm": "SHA2_256", "digest": ""}, "signature": signature}
    (source.folder / SIGNATURE).write_text(json.dumps({"mediaType": BUNDLE, "messageSignature": message}))
    source.put()
    assert await source.look() == "Succeeded"


async def test_what_is_not_signed_is_refused_before_it_is_fetched(served: Signed) -> None:
    (served.folder / MANIFEST).unlink()
    served.put()
    downloads = served.store.downloads
    assert f"it is not signed: it has no {MANIFEST}" in await served.refusal()
    assert served.store.downloads == downloads + 1
    served.sign()
    (served.folder / SIGNATURE).unlink()
    served.put()
    assert f"it is not signed: it has no {SIGNATURE}" in await served.refusal()


async def test_a_key_that_is_not_trusted_is_refused_until_it_is(served: Signed) -> None:
    key, public = served.make_key("mallory")
    served.write("flags.json", "2")
    served.sign(key)
    served.put()
    message = await served.refusal()
    assert "by none of the trusted keys" in message
    assert "Secret apps/trusted (it has ci)" in message
    served.trusted = {**served.trusted, "mallory.pub": public}
    assert await served.look() == "Succeeded"
    assert served.metadata[VERIFIED_BY].startswith("mallory (")


async def test_a_key_that_is_taken_back_verifies_the_same_revision_again(served: Signed) -> None:
    served.trusted = {"other.pub": served.make_key("other")[1]}
    assert "by none of the trusted keys" in await served.refusal()
    served.restart()
    assert "by none of the trusted keys" in await served.refusal()


async def test_a_manifest_or_signature_that_was_changed_is_refused(served: Signed) -> None:
    manifested = (served.folder / MANIFEST).read_text(encoding="utf-8")
    served.store.write(f"checkout/{MANIFEST}", manifested.replace("empty", "empt"))
    assert "by none of the trusted keys, or was changed" in await served.refusal()
    served.store.write(f"checkout/{MANIFEST}", manifested)
    served.store.write(f"checkout/{SIGNATURE}", "ä")
    assert "it is not Base64" in await served.refusal()


async def test_an_object_that_is_missing_is_refused(served: Signed) -> None:
    served.store.remove("checkout/empty.txt")
    assert "in its manifest, and not there: empty.txt" in await served.refusal()


async def test_objects_that_were_not_signed_are_refused(served: Signed) -> None:
    for name in "abcde":
        served.store.write(f"checkout/{name}.json", "{}")
    assert "there, and not in its manifest: a.json, b.json, c.json and 2 more" in await served.refusal()


async def test_an_object_that_is_not_read_is_none_that_was_signed(served: Signed) -> None:
    with (served.store.folder / "checkout/large.json").open("wb") as file:
        file.truncate(16 * 1024**2 + 1)
    assert "there, and not in its manifest: checkout/large.json: too large" in await served.refusal()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"critical": {}, "files": {}}', "is no manifest of files"),
        ('{"type": "flagstaff.dev/manifest/v1", "signedAt": "now"}', "lacks signedAt, or the files' hashes"),
        (f"{'0' * 64}  flags.json\n", "does not begin with # flagstaff.dev/manifest/v1 TIME"),
        ("# flagstaff.dev/manifest/v1 2026-01-02T03:04:05.678Z\nx\n", "a line that sha256sum does not write"),
    ],
)
async def test_something_else_that_the_key_signed_is_no_manifest(
    served: Signed, content: str, message: str
) -> None:
    (served.folder / MANIFEST).write_text(content)
    made = run("openssl", "dgst", "-sha256", "-sign", str(served.private), str(served.folder / MANIFEST))
    (served.folder / SIGNATURE).write_text(base64.b64encode(made).decode())
    served.put()
    assert message in await served.refusal()


async def test_what_was_signed_before_the_accepted_one_is_refused_until_it_is_let_through(
    served: Signed,
) -> None:
    first, accepted = served.metadata[SIGNED_AT], served.status["artifact"]
    shutil.copytree(served.folder, served.root / "old")
    served.publish("2")
    assert await served.look() == "Succeeded"
    newer = served.status["artifact"]
    assert newer["metadata"][SIGNED_AT] > first
    shutil.rmtree(served.folder)
    shutil.copytree(served.root / "old", served.folder)
    served.put()
    served.restart()
    assert await served.look() == "HistoryRewritten"
    assert served.objects["flags.json"] == "2"
    message = served.condition("Stalled")[2]
    for expected in (accepted["revision"], newer["revision"], first, newer["metadata"][SIGNED_AT]):
        assert expected in message
    served.annotations = {ACCEPT_REVISION: message.rpartition("=")[2]}
    assert await served.look() == "Succeeded"
    assert served.objects["flags.json"] == "1"
    assert served.metadata[SIGNED_AT] == first
    served.publish("3")
    assert await served.look() == "Succeeded"
    shutil.rmtree(served.folder)
    shutil.copytree(served.root / "old", served.folder)
    served.put()
    assert await served.look() == "HistoryRewritten"


async def test_another_bucket_begins_a_history_of_its_own(served: Signed) -> None:
    served.sign_as("2020-01-02T03:04:05.678Z")
    served.put()
    assert await served.look() == "HistoryRewritten"
    (served.store.folder / "checkout").rename(served.store.folder / "shop")
    served.spec["bucket"]["prefix"] = "shop/"
    assert await served.look() == "Succeeded"


async def test_a_signer_is_named_by_the_key_alone_where_authors_are_not_shown(source: Signed) -> None:
    source.authors, source.helped = False, True
    source.restart()
    source.publish("1")
    assert await source.look() == "Succeeded"
    assert source.metadata[VERIFIED_BY].startswith("cosign SHA256:")


async def test_the_whole_bucket_may_be_signed(source: Signed) -> None:
    source.sign()
    for path in source.folder.rglob("*"):
        if path.is_file():
            source.store.write(path.relative_to(source.folder).as_posix(), path.read_text(encoding="utf-8"))
    del source.spec["bucket"]["prefix"]
    assert await source.look() == "Succeeded"
    assert source.objects == FILES


def test_a_prefix_that_is_no_folder_cannot_be_verified(source: Signed) -> None:
    source.spec["bucket"]["prefix"] = "checkout"
    with pytest.raises(InvalidSpecError, match="ends in /"):
        read(FlagSourceSpec, source.spec)
