"""A bucket as a source, also one that a command line names."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from controller.api.addresses import is_endpoint
from controller.api.meta import SIGNED_AT
from controller.runtime.helper import TaskLimits
from controller.runtime.secret_texts import SecretTexts
from controller.runtime.setbacks import Failed, Stalled, Waiting, as_failed, with_advice
from controller.sources.backend import (
    NOTHING_ACCEPTED,
    AcceptedRevision,
    Fetched,
    LocalBackend,
    Revision,
    TreeLimits,
    with_signer,
)
from controller.sources.bucket_listing import (
    PROOF,
    Listed,
    ManifestQuestion,
    ManifestTrust,
    revision_of,
    select,
)
from controller.sources.bucket_place import Bucket, Scheme, azure_account, parse_url
from controller.sources.deadline import Deadline, LimitedTasks
from controller.sources.secrets import OF_OPTIONS, on_command_line
from controller.sources.signing_keys import epoch
from evaluator.flags.model import EMPTY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path


CLIENT: Final = "controller.sources.bucket_client"
TASK: Final = TaskLimits()
Call: TypeAlias = "Callable[..., Awaitable[Any]]"
"""(name of a function of the client, bucket, its other arguments) -> what it returns or raises."""


async def list_objects(call: Call, bucket: Bucket, limits: TreeLimits) -> list[Listed]:
    """List the bucket. Raises Setback, OSError."""
    entries: list[Listed] = await call("list_objects", bucket, limits)
    return entries


async def fetch_objects(call: Call, bucket: Bucket, objects: Sequence[Listed], into: Path) -> None:
    """Write these objects as files below `into`. Raises Setback, OSError."""
    await call("fetch_objects", bucket, objects, into)


async def call_here(name: str, bucket: Bucket, *arguments: object, seconds: float = 60.0) -> Any:
    """A `Call` in this process, of at most `seconds`: for a store that the user of a command named."""
    client = await asyncio.to_thread(import_module, CLIENT)
    async with Deadline(seconds, bucket.display_name).limit():
        return await getattr(client, name)(bucket, *arguments)


def in_helper(tasks: LimitedTasks) -> Call:
    """A `Call` in a helper process: obstore takes in whatever a store answers."""
    return partial(tasks.run, "reading the store's answers", run_now)


def run_now(name: str, *arguments: object) -> Any:
    """Call the client's function in a helper process. Raises Setback, OSError."""
    return asyncio.run(getattr(import_module(CLIENT), name)(*arguments))


@dataclass(frozen=True, slots=True)
class BucketBackend(LocalBackend):
    """The objects of one bucket."""

    bucket: Bucket
    call: Call = call_here
    limits: TreeLimits = field(default_factory=TreeLimits)
    interval: float = 10.0
    advice: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    spec: Mapping[str, Any] = field(default_factory=dict)
    """The part of an equivalent FlagSource, in local mode."""
    authors: bool = True
    """Whether status and Events name the signer."""
    trust: ManifestTrust | None = None
    """Decides whose signatures count; None: no signature is required."""
    _last: list[list[Listed]] = field(default_factory=list, init=False, compare=False)
    """The newest listing, if there is one: `fetch` need not ask again for what `resolve` read."""

    @property
    def shows_every_push(self) -> bool:
        """True: each object that is put changes the revision."""
        return True

    @property
    def epoch(self) -> str:
        """The epoch of the trusted keys; empty: nothing need be signed."""
        return "" if self.trust is None else self.trust.epoch

    @property
    def lineage(self) -> str:
        """The bucket, of which an older signature is refused; empty: nothing need be signed."""
        return "" if self.trust is None else self.address

    async def resolve(self) -> Revision:
        """List the bucket: one request for each thousand objects. Raises Setback."""
        listing = await self._list_objects()
        if not listing:
            raise Waiting(
                "EmptyBucket", f"{self.bucket.display_name}: no object has this prefix, or may be read"
            )
        return revision_of(listing)

    async def fetch(
        self, revision: Revision, into: Path, accepted: AcceptedRevision = NOTHING_ACCEPTED
    ) -> Fetched:
        """Write the objects below the empty folder `into`, each under its whole key. Raises Setback."""
        listing = self._last[0] if self._last else await self._list_objects()
        if revision_of(listing) != revision:
            raise Failed(
                "RevisionGone", f"{self.bucket.display_name}: {revision} is not what it holds any more"
            )
        chosen, skipped = select(listing, self.limits)
        fetched = Fetched(revision, skipped=tuple(skipped))
        with with_advice(self.advice):
            try:
                if self.trust is not None:
                    return await self._fetch_signed(self.trust, chosen, into, fetched, accepted)
                await fetch_objects(self.call, self.bucket, chosen, into)
            except OSError as error:
                raise as_failed(error, f"the objects of {self.bucket.display_name}") from error
        return fetched

    @property
    def address(self) -> str:
        """The bucket, its prefix, and whose it is."""
        return f"{self.bucket.display_name} {self.bucket.endpoint}".strip()

    @property
    def display_name(self) -> str:
        """The bucket and its prefix."""
        return self.bucket.display_name

    async def _fetch_signed(
        self,
        trust: ManifestTrust,
        chosen: Sequence[Listed],
        into: Path,
        fetched: Fetched,
        accepted: AcceptedRevision,
    ) -> Fetched:
        """The manifest first: of a bucket that is not signed nothing else is fetched."""
        prefix = self.bucket.prefix
        folder = into.joinpath(*prefix.split("/"))
        names = {entry.key.removeprefix(prefix): entry for entry in chosen}
        proof = [names[name] for name in PROOF if name in names]
        await fetch_objects(self.call, self.bucket, proof, into)
        question = ManifestQuestion(self.bucket.display_name, folder, names.keys() - PROOF, fetched, accepted)
        manifest, signer = await asyncio.to_thread(trust.judge, question)
        files = [names[name] for name in names if name not in PROOF]
        await fetch_objects(self.call, self.bucket, files, into)
        await asyncio.to_thread(trust.compare, question, manifest)
        signed = replace(fetched, metadata={SIGNED_AT: manifest.signed_at})
        return with_signer(signed, signer, named=self.authors)

    async def _list_objects(self) -> list[Listed]:
        with with_advice(self.advice):
            self._last[:] = [await list_objects(self.call, self.bucket, self.limits)]
        return self._last[0]


_FILES: Final = (".json", ".yaml", ".yml")
_ADVICE: Final = {
    Scheme.S3: "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they may read",
    Scheme.GOOGLE: "check GOOGLE_APPLICATION_CREDENTIALS, and what it may read",
    Scheme.AZURE: "check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, and what they may read",
}
_PROVIDERS: Final = {Scheme.S3: "generic", Scheme.GOOGLE: "gcp", Scheme.AZURE: "azure"}
_SECRETS: Final = (
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY",
)  # fmt: skip
"""Variables that hold what must not be shown."""


def open_bucket(
    text: str,
    environment: Mapping[str, str],
    *,
    endpoint: str | None = None,
    region: str | None = None,
    interval: float = 10.0,
    keys: Mapping[str, bytes] = EMPTY,
) -> BucketBackend:
    """The bucket that `text` names; signed with one of `keys`, by the names of their files, if there are any.
    Raises Stalled (URLInvalid, InvalidSecret).

    An endpoint with `http://` is consent to plain HTTP. Without one it is that of `environment`, as the
    vendor's own tools take it.
    """
    bucket = parse_url(text)
    store, prefix = bucket.store, bucket.prefix
    if store is Scheme.S3:
        endpoint = endpoint or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    endpoint = (endpoint or "").rstrip("/")
    if endpoint and not is_endpoint(endpoint):
        raise Stalled("URLInvalid", "--endpoint: write https://HOST or http://HOST:PORT")
    bucket = replace(
        bucket,
        prefix=f"{prefix}/" if prefix and not prefix.endswith(_FILES) else prefix,
        endpoint=endpoint,
        config=_config(store, environment, endpoint, region),
        client={"timeout": "60s"},
        secrets=tuple(filter(None, map(environment.get, _SECRETS))),
    )
    spec = {
        "provider": _PROVIDERS[store],
        "bucketName": bucket.name,
        "prefix": bucket.prefix,
        "endpoint": endpoint,
        "region": region or "",
        "insecure": endpoint.startswith("http://"),
    }
    advice = {"AuthenticationFailed": _ADVICE[store]}
    trust = _trust(bucket, keys) if keys else None
    return BucketBackend(bucket, interval=interval, advice=advice, spec={"bucket": spec}, trust=trust)


def _trust(bucket: Bucket, content: Mapping[str, bytes]) -> ManifestTrust:
    if bucket.prefix and not bucket.prefix.endswith("/"):
        raise Stalled(
            "URLInvalid", f"{bucket.display_name}: --verify-key: name a folder, which alone is signed"
        )
    from controller.sources.cosign_keys import read_cosign_keys  # noqa: PLC0415 - for signatures alone

    keys = read_cosign_keys(SecretTexts(OF_OPTIONS, content))
    return ManifestTrust(keys, epoch({"provider": "bucket"}, content), on_command_line(content))


def _config(
    store: Scheme, environment: Mapping[str, str], endpoint: str, region: str | None
) -> dict[str, str]:
    """Raises Stalled (URLInvalid)."""
    if store is Scheme.AZURE and not environment.get("AZURE_STORAGE_ACCOUNT_NAME"):
        account = azure_account(endpoint)
        if not account:
            message = (
                "az://: set AZURE_STORAGE_ACCOUNT_NAME, or --endpoint https://ACCOUNT.blob.core.windows.net"
            )
            raise Stalled("URLInvalid", message)
        return {"account_name": account}
    return {"region": region} if region and store is Scheme.S3 else {}
