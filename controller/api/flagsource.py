"""FlagSource: where flag definitions live."""

from __future__ import annotations

from posixpath import normpath
from typing import TYPE_CHECKING, Annotated, Final, Self

from pydantic import Field, model_validator

from controller.api import kind as record
from controller.api.artifact_status import SourceStatus
from controller.api.fields import (
    INT64,
    TIME,
    Interval,
    LocalReference,
    Model,
    ObjectName,
    RuledModel,
    SpecProblem,
    SpecRule,
    Timeout,
    refuse,
    that,
)
from controller.api.kind import AGE_COLUMN, READY_COLUMN, Kind, PrinterColumn
from controller.api.meta import API_VERSION
from controller.api.parsing import ignore_patterns, is_within_source
from controller.api.references import TAG_MODES
from controller.api.source_spec import BucketSpec, GitSpec, LayerSelector, OciSpec, VerifySpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.meta import Resource

KIND: Final = "FlagSource"
PROVIDERS: Final = ("git", "oci", "bucket")
"""The fields of the spec; each configures one provider."""

INCLUDE_LIMIT: Final = 8
"""Sources that one may include."""
OBSERVED: Final = (
    "observed_ignore",
    "observed_include",
    "observed_layer_selector",
    "observed_recurse_submodules",
    "observed_sparse_checkout",
)
"""Fields of the status that say how the files of its artifact were chosen."""

_WITHIN: Final = SpecRule(
    "!self.matches('^/|(^|/)[.][.](/|$)')",
    "must be a folder within the source: no / at its start, and no ..",
    is_within_source,
)
_Folder = Annotated[str, Field(max_length=1024), _WITHIN]


class Include(Model):
    """Another FlagSource beside this one, whose files are taken in."""

    repository: LocalReference
    """A FlagSource in the same namespace."""
    from_path: _Folder = ""
    """The folder to take; all files if it is not set."""
    to_path: _Folder = ""
    """The folder to put the files into; one with the name of the FlagSource if it is not set."""

    @property
    def source_folder(self) -> str:
        """What is taken of its files; empty: all."""
        return _plain(self.from_path)

    @property
    def target_folder(self) -> str:
        """Return the folder that the included files are put in; empty: the root."""
        return _plain(self.to_path or self.repository.name)


def _plain(path: str) -> str:
    plain = normpath(path)
    return "" if plain == "." else plain


def _is_folder(bucket: BucketSpec) -> bool:
    return f"/{bucket.prefix}".endswith("/")


class FlagSourceSpec(RuledModel):
    """What the user asks for."""

    RULES = (
        SpecRule(
            "[has(self.git), has(self.oci), has(self.bucket)].exists_one(each, each)",
            "set exactly one of git, oci, bucket",
            lambda spec: [spec.git, spec.oci, spec.bucket].count(None) == 2,
        ),
        SpecRule(
            "!has(self.verify) || !has(self.bucket) || !has(self.bucket.prefix) || "
            "self.bucket.prefix == '' || self.bucket.prefix.endsWith('/')",
            "verify needs a bucket.prefix that ends in /: a folder is signed",
            lambda spec: spec.verify is None or spec.bucket is None or _is_folder(spec.bucket),
        ),
        SpecRule(
            "!has(self.verify) || !has(self.verify.mode) || has(self.git)",
            "verify.mode works only with git",
            lambda spec: spec.verify is None or spec.verify.mode is None or spec.git is not None,
        ),
        SpecRule(
            "!has(self.verify) || !has(self.verify.matchOIDCIdentity) || "
            "size(self.verify.matchOIDCIdentity) == 0 || has(self.oci)",
            "verify.matchOIDCIdentity works only with oci",
            lambda spec: spec.verify is None or not spec.verify.match_oidc_identity or spec.oci is not None,
        ),
        SpecRule(
            "!has(self.verify) || !has(self.verify.rules) || size(self.verify.rules) == 0 || "
            "!has(self.git) || !has(self.git.recurseSubmodules) || !self.git.recurseSubmodules",
            "verify.rules and git.recurseSubmodules exclude each other: rules do not see the files of "
            "submodules",
            lambda spec: (
                spec.verify is None
                or not spec.verify.rules
                or spec.git is None
                or not spec.git.recurse_submodules
            ),
        ),
    )

    interval: Interval
    """How often the source is polled, up to 5 % sooner or later, such as `30s`, `5m` or `1h30m`; at least
    half a second. A [FlagReceiver](flagreceiver.md) makes a push immediate.
    """
    timeout: Timeout = 60.0
    """How long one reconcile may take in all: listing, fetching and reading; at most `10m`."""
    suspend: bool = False
    """Do not poll the source; the artifact is kept."""
    ignore: Annotated[str, Field(max_length=65536), that(ignore_patterns)] | None = None
    """Patterns of files that are not in the artifact, as in [`.gitignore`](../reference/artifacts.md#ignore).
    They replace the default ones.
    """
    service_account_name: ObjectName | None = None
    """The service account in the same namespace with whose rights Secrets are read and `export` writes
    ([tenants](../tenants.md#acting-as-a-service-account)); the controller's default if it is not set.
    """
    git: GitSpec | None = None
    """A Git repository."""
    oci: OciSpec | None = None
    """An artifact in a [container registry](../registries.md), as `flagstaff push`, `flux push artifact`
    and `oras push` make them.
    """
    bucket: BucketSpec | None = None
    """Objects in a [bucket](../buckets.md): S3 or what speaks its protocol, Google Cloud Storage or Azure
    Blob Storage.
    """
    verify: VerifySpec | None = None
    """What must be signed, and by whom ([verification](../verification.md)). A revision without the
    signatures leaves the last artifact in place.
    """
    export: bool = False
    """Whether to publish the artifact as an ExternalArtifact of the same name, [for Flux's
    tools](#for-fluxs-tools).
    """
    include: Annotated[tuple[Include, ...], Field(max_length=INCLUDE_LIMIT)] = ()
    """Other FlagSources in the same namespace whose files are
    [in the artifact](../reference/artifacts.md#include).
    """

    @model_validator(mode="after")
    def _has_a_tag_to_verify(self) -> Self:
        mode = None if self.verify is None else self.verify.mode
        if mode in TAG_MODES and self.git is not None and not self.git.ref.is_tag:
            message = f"{mode} needs a tag: set spec.git.ref.tag or semver, or take mode HEAD"
            refuse([SpecProblem("verify.mode", message, "InvalidVerificationMode")])
        return self

    def cluster_problems(self) -> Iterator[SpecProblem]:
        """See Model: the problems of its provider."""
        yield from getattr(self, self.provider).cluster_problems()

    @property
    def provider(self) -> str:
        """Return the name of the field that is set, one of `PROVIDERS`."""
        return next(name for name in PROVIDERS if getattr(self, name) is not None)

    @property
    def selection_fields(self) -> FlagSourceStatus:
        """What decides which files of a revision are in its artifact, as the status shows it (`OBSERVED`)."""
        selector = LayerSelector() if self.oci is None else self.oci.layer_selector
        return FlagSourceStatus(
            observed_ignore=self.ignore,
            observed_include=self.include or None,
            observed_layer_selector=None if selector == LayerSelector() else selector,
            observed_recurse_submodules=(self.git is not None and self.git.recurse_submodules) or None,
            observed_sparse_checkout=(() if self.git is None else self.git.sparse_checkout) or None,
        )


class IncludedArtifact(Model):
    """The artifact of an included source that went into this one's."""

    path: str
    """Where it is, below the artifact server."""
    url: str
    """Where it can be downloaded."""
    revision: str
    """What it was made of."""
    digest: str
    """Of the archive's bytes."""
    last_update_time: Annotated[str, TIME]
    """When it was stored."""
    size: Annotated[int, INT64] | None = None
    """Of the archive, in bytes."""


class FlagSourceStatus(SourceStatus):
    """What was found."""

    last_handled_accept_revision: str | None = None
    """The last value of the annotation flagstaff.dev/accept-revision that was acted on; it lets nothing
    through again.
    """
    observed_ignore: str | None = None
    """The spec.ignore that the artifact was made with."""
    observed_include: tuple[Include, ...] | None = None
    """The spec.include that the artifact was made with."""
    included_artifacts: tuple[IncludedArtifact, ...] | None = None
    """The artifacts that were included, in the order of spec.include."""
    observed_layer_selector: LayerSelector | None = None
    """The spec.oci.layerSelector that the artifact was made with, as far as it is not the default."""
    observed_recurse_submodules: bool | None = None
    """Whether the artifact was made with the files of submodules."""
    observed_sparse_checkout: tuple[str, ...] | None = None
    """The spec.git.sparseCheckout that the artifact was made with."""
    observed_lineage: str | None = None
    """The reference and the repository within which a revision must descend from the one before."""
    observed_verification: str | None = None
    """Digest of the policy and the keys by which the artifact was verified."""


def source_address(source: Resource) -> str | None:
    """The address that a source of any kind reads."""
    provider = next((source.spec[name] for name in PROVIDERS if name in source.spec), source.spec)
    if not isinstance(provider, dict):
        return None
    bucket = provider.get("bucketName") or provider.get("name")
    address = provider.get("url") or bucket
    return None if address is None else str(address)


RECORD: Final = Kind(
    API_VERSION,
    KIND,
    "flagsources",
    short_name="fsrc",
    description="FlagSource says where flag definitions live, and keeps an artifact of what is there.",
    spec=FlagSourceSpec,
    spec_description="Where definitions live, and how often they are polled.",
    status=FlagSourceStatus,
    columns=(
        READY_COLUMN,
        PrinterColumn("Revision", ".status.artifact.revision"),
        PrinterColumn("Since", ".status.artifact.lastUpdateTime", "date"),
        record.SUSPENDED_COLUMN,
        AGE_COLUMN,
        record.STATUS_COLUMN,
        PrinterColumn("URL", ".spec.git.url", priority=1),
    ),
    rights=(*record.RECONCILED, record.SHOWN_BY_PAGE),
    modules="sources artifacts",
    quota=20,
    is_granted=True,
    has_alerts=True,
)
