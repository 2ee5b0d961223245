"""What may be done to something signed, for each form of signature: the rows of the verification matrix."""

from __future__ import annotations

import base64
import functools
import json
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.sources.bucket_listing import MANIFEST, SIGNATURE
from controller.sources.oci_backend import OciFactory
from tests.registry.artifacts import flux
from tests.registry.signing import Key, attachment_of, bundle, bundle_of, referrers, signature_tag, simple
from tests.repositories import Repository
from tests.signing import EXPIRED_AT, ssh_pair
from tests.sigstore.instance import SUBJECT
from tests.unit.controller.sources.test_bucket_verification import Signed
from tests.worlds.sources import Verified

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from controller.sources.backend import BackendFactory
    from tests.registry.artifacts import Artifact
    from tests.registry.fixtures import Shelf
    from tests.s3 import S3
    from tests.signing import Pgp
    from tests.sigstore.instance import Instance

OLD, GOOD, NEW = "0", "1", "2"
"""What flags.json holds: in what was accepted first, in what was accepted last, and in what is judged."""


class ExpiredKey(NamedTuple):
    """Of PGP's."""

    fingerprint: str
    public: bytes
    """As it is trusted: when it is renewed, it does not say so."""


@functools.cache
def _expired_key(ring: Pgp) -> ExpiredKey:
    """One that its owner has renewed, and signs with."""
    key = ring.make("Exp <exp@example.com>", expires="1y", at=EXPIRED_AT)
    public = ring.public(key)
    ring.gpg("--quick-set-expire", key, "20y", at="20200701T000000!")
    return ExpiredKey(key, public)


@functools.cache
def _key(ring: Pgp, name: str) -> str:
    return ring.make(name)


class GitRow(Verified):
    """A repository whose commits, or tag v1, are signed."""

    def __init__(self, root: Path, mode: str, kind: str, ring: Pgp) -> None:
        self.mode, self.kind, self.ring = mode, kind, ring
        self.repository = Repository(root / "repository")
        super().__init__(root, f"file://{self.repository.path}")
        self.ada, self.eve = (self._make(name) for name in ("ada@example.com", "eve@example.com"))
        self._trust(self._public(self.ada))
        self.verify(mode, **({"ref": {"tag": "v1"}} if "Tag" in mode else {}))
        self.repository.commit("before all")

    def old(self) -> None:
        self._put(OLD, self.ada)
        self.repository.git("branch", "old")
        self._keep("old")

    def good(self) -> None:
        self._put(GOOD, self.ada)
        self.repository.git("branch", "good")
        self._keep("good")

    def undo(self) -> None:
        """Have what `good` had."""
        self._restore("good")
        self._trust(self._public(self.ada))

    def unsigned(self) -> None:
        self._put(NEW, None)

    def wrong_key(self) -> None:
        self._put(NEW, self.eve)

    def expired(self) -> None:
        if self.kind == "PGP":
            key = _expired_key(self.ring)
            self._put(NEW, key.fingerprint)
            self._trust(self._public(self.ada), key.public)
        else:
            self._put(NEW, self.eve)
            until = f'eve@example.com valid-before="20200101" {self.eve.public}'
            self.trusted = {"ada.sshpub": self.ada.public.encode(), "allowed_signers": until.encode()}

    def revoked(self) -> None:
        if self.kind == "PGP":
            key = self.ring.make(f"Rev <rev@{self.mode}.example>")
            self._put(NEW, key)
            self.ring.revoke(key)
            self._trust(self._public(self.ada), self.ring.public(key))
        else:
            self._put(NEW, self.ada)
            self._trust(self._public(self.eve))

    def tampered(self) -> None:
        self._put(NEW, self.ada)
        if self.mode == "Tag":
            self._point_tag(self._forge("tag", "v1"))
            return
        self.repository.git(
            "reset", "-q", "--hard", self._forge("commit", "HEAD~" if self.mode == "EveryCommit" else "HEAD")
        )
        self._top(self.ada)

    def replayed(self) -> None:
        """By the same key: another tag, or a commit of another repository."""
        if "Tag" in self.mode:
            self._put(NEW, self.ada)
            self.repository.git("tag", "-f", "-s", "-m", "signed", "v0")
            self._point_tag("refs/tags/v0")
            return
        self.repository.git("checkout", "-q", "--orphan", "elsewhere")
        self._put(NEW, self.ada)
        self.repository.git("branch", "-f", "main", "elsewhere")
        self.repository.git("checkout", "-q", "main")
        self.repository.git("branch", "-D", "elsewhere")

    def older(self) -> None:
        self._restore("old")

    def _make(self, name: str) -> Any:
        return _key(self.ring, name) if self.kind == "PGP" else ssh_pair(self.root, name=name)

    def _public(self, key: Any) -> bytes:
        found: bytes = self.ring.public(key) if self.kind == "PGP" else key.public.encode()
        return found

    def _trust(self, *keys: bytes) -> None:
        ending = "asc" if self.kind == "PGP" else "sshpub"
        self.trusted = {f"{number}.{ending}": key for number, key in enumerate(keys)}

    def _use(self, key: Any) -> None:
        if self.kind == "PGP":
            self.ring.use(self.repository, key)
        else:
            key.use(self.repository)

    def _put(self, text: str, key: Any) -> None:
        """Signed as the mode asks, by `key`; None: all but that."""
        git = self.repository.git
        self.repository.write("flags.json", text)
        git("add", "-A")
        if key is not None:
            self._use(key)
        commits = key is not None and self.mode != "Tag"
        git("commit", "-q", *(("-S",) if commits else ()), "-m", "a change")
        if self.mode == "Tag" and key is None:
            git("tag", "-f", "-a", "-m", "unsigned", "v1")
        elif self.mode == "Tag":
            git("tag", "-f", "-s", "-m", "signed", "v1")
        else:
            self._top(self.ada)

    def _top(self, key: Any) -> None:
        """What stands above a commit, well signed."""
        self._use(key)
        if self.mode == "EveryCommit":
            self.repository.git("commit", "-q", "-S", "--allow-empty", "-m", "on top")
        elif self.mode == "TagAndHEAD":
            self.repository.git("tag", "-f", "-s", "-m", "signed", "v1")

    def _forge(self, kind: str, name: str) -> str:
        """The same object with another message."""
        raw = self.repository.git("cat-file", kind, name)
        changed = raw.replace("a change", "a chance").replace("\nsigned\n", "\nsealed\n")
        assert changed != raw
        return self.repository.git("hash-object", "-t", kind, "-w", "--stdin", given=f"{changed}\n")

    def _point_tag(self, name: str) -> None:
        self.repository.git("update-ref", "refs/tags/v1", name)

    def _keep(self, name: str) -> None:
        if "Tag" in self.mode:
            self.repository.git("update-ref", f"refs/kept/{name}", "refs/tags/v1")

    def _restore(self, name: str) -> None:
        self.repository.git("reset", "-q", "--hard", name)
        if "Tag" in self.mode:
            self._point_tag(f"refs/kept/{name}")


class OciRow(Verified):
    """A repository of a registry, whose artifacts cosign signs; `form` is `tag` or `bundle`."""

    def __init__(self, root: Path, form: str, shelf: Shelf) -> None:
        self.form, self.shelf = form, shelf
        super().__init__(root, "")
        self.spec: dict[str, Any] = {
            "interval": "10m",
            "oci": {"url": shelf.url, "insecure": True},
            "verify": {"secretRef": {"name": "trusted"}},
        }
        self.ci, self.eve = Key(), Key()
        self.digests: dict[str, str] = {}
        self.trusted = {"ci.pub": self.ci.public}

    def backend_factory(self) -> tuple[str, BackendFactory[Any]]:
        return "oci", OciFactory(self.secret)

    def old(self) -> None:
        self._attach(self._push(OLD), self.ci)

    def good(self) -> None:
        self._attach(self._push(GOOD), self.ci)

    def undo(self) -> None:
        """Have what `good` had, and no signature of another."""
        self._push(GOOD)
        if NEW in self.digests:
            self._put(self.digests[NEW], flux({}))
        self.undo_keys()

    def undo_keys(self) -> None:
        self.trusted = {"ci.pub": self.ci.public}

    def unsigned(self) -> None:
        self._push(NEW)

    def wrong_key(self) -> None:
        self._attach(self._push(NEW), self.eve)

    def revoked(self) -> None:
        self._attach(self._push(NEW), self.ci)
        self.trusted = {"eve.pub": self.eve.public}

    def tampered(self) -> None:
        """The signature of another artifact, in which this one is named."""
        digest, before = self._push(NEW), self.digests[GOOD]
        if self.form == "tag":
            payload = simple(digest, self.ci).blobs[-1]
            self._put(digest, simple(before, self.ci, content=payload))
            return
        ours, theirs = (json.loads(bundle(each, self.ci).blobs[-1]) for each in (digest, before))
        envelope = {**ours["dsseEnvelope"], "signatures": theirs["dsseEnvelope"]["signatures"]}
        self._put(digest, bundle_of(envelope))

    def replayed(self) -> None:
        """The signature of another artifact."""
        self._attach(self._push(NEW), self.ci, of=self.digests[GOOD])

    def older(self) -> None:
        self._push(OLD)

    def _push(self, text: str) -> str:
        artifact = flux({"flags.json": text})
        self.digests[text] = self.shelf.pusher.push(self.shelf.repository, "latest", artifact)
        return self.digests[text]

    def _attach(self, digest: str, key: Key, of: str = "") -> None:
        make = simple if self.form == "tag" else bundle
        self._put(digest, make(of or digest, key))

    def _put(self, digest: str, signature: Artifact) -> None:
        """At the tag that is looked for where a registry has no list of referrers."""
        pusher, repository = self.shelf.pusher, self.shelf.repository
        if self.form == "tag":
            pusher.push(repository, signature_tag(digest), signature)
        else:
            pusher.push(repository, "the-bundle", signature)
            pusher.push_index(repository, digest.replace(":", "-"), referrers(signature))


class KeylessRow(OciRow):
    """A repository of a registry, whose artifacts an identity signs without a key."""

    def __init__(self, root: Path, shelf: Shelf, sigstore: Instance) -> None:
        self.sigstore = sigstore
        super().__init__(root, "bundle", shelf)
        self.spec["verify"] = {"trustedRootSecretRef": {"name": "root"}}
        self.undo_keys()

    async def secret(self, namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
        return {"trusted_root.json": self.sigstore.root} if name == "root" else None

    def undo_keys(self) -> None:
        self._trust("^https://git\\.example/shop/flags/")
        self.sigstore.authority.age = timedelta()

    def wrong_key(self) -> None:
        self._sign(self._push(NEW), subject="eve@evil.example")

    def expired(self) -> None:
        """A certificate that had ended when the log recorded the signature."""
        self.sigstore.authority.age = timedelta(hours=1)
        self._sign(self._push(NEW))

    def revoked(self) -> None:
        self._sign(self._push(NEW))
        self._trust("^https://git\\.example/shop/other/")

    def tampered(self) -> None:
        digest, before = self._push(NEW), self.digests[GOOD]
        bundle = json.loads(self.sigstore.sign(before))
        payload = base64.b64decode(bundle["dsseEnvelope"]["payload"]).decode()
        forged = payload.replace(before.removeprefix("sha256:"), digest.removeprefix("sha256:"))
        bundle["dsseEnvelope"]["payload"] = base64.b64encode(forged.encode()).decode()
        self._put(digest, attachment_of(json.dumps(bundle).encode()))

    def _trust(self, subject: str) -> None:
        identity = {"issuer": "^https://login\\.example$", "subject": subject}
        self.spec["verify"]["matchOIDCIdentity"] = [identity]

    def _attach(self, digest: str, key: Key, of: str = "") -> None:
        self._sign(digest, of=of)

    def _sign(self, digest: str, *, of: str = "", subject: str = SUBJECT) -> None:
        self._put(digest, attachment_of(self.sigstore.sign(of or digest, subject=subject)))


class BucketRow(Signed):
    """A folder of a bucket with a signed manifest."""

    moments: Final = iter(range(100, 1000))

    def __init__(self, root: Path, store: S3) -> None:
        super().__init__(root, store)
        self.eve = self.make_key("eve")
        self.known = dict(self.trusted)

    @property
    def stored(self) -> str:
        return self.objects["flags.json"]

    def old(self) -> None:
        self._keep(OLD)

    def good(self) -> None:
        self._keep(GOOD)

    def undo(self) -> None:
        self._restore(GOOD)
        self.trusted = dict(self.known)

    def unsigned(self) -> None:
        self.publish(NEW)
        for name in (MANIFEST, SIGNATURE):
            (self.folder / name).unlink()
        self.put()

    def wrong_key(self) -> None:
        self.write("flags.json", NEW)
        self.sign(self.eve[0])
        self.put()

    def revoked(self) -> None:
        self.publish(NEW)
        self.trusted = {"eve.pub": self.eve[1]}

    def tampered(self) -> None:
        self.store.write("checkout/flags.json", NEW)

    def replayed(self) -> None:
        """The proof of another folder, by the same key."""
        self.publish(NEW)
        self.store.write("checkout/flags.json", GOOD)

    def older(self) -> None:
        self._restore(OLD)

    def _keep(self, text: str) -> None:
        self.write("flags.json", text)
        self.sign()
        self.sign_as(f"2026-01-02T03:04:05.{next(self.moments)}Z")
        self.put()
        shutil.copytree(self.folder, self.root / f"kept-{text}")

    def _restore(self, text: str) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.root / f"kept-{text}", self.folder)
        self.put()
