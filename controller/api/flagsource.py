"""FlagSource: where flag definitions live."""

from __future__ import annotations

import re
from posixpath import normpath
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from controller.api.artifact import SourceStatus
from controller.api.fields import Interval, LocalReference, Model, Name, Timeout

KIND: Final = "FlagSource"
DEFAULT_BRANCH: Final = "main"
PROVIDERS: Final = ("git", "oci", "bucket")
"""Fields of the spec of which each configures one provider."""

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

_Short = Annotated[str, Field(min_length=1, max_length=255)]


def _folder(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError("must be a folder within the source: no / at its start, and no ..")
    return path


def _literal(path: str) -> str:
    if any(mark in path for mark in "*?["):
        raise ValueError("must be a folder's name, not a pattern")
    return path


_Folder = Annotated[str, Field(max_length=1024), AfterValidator(_folder)]
_Directory = Annotated[_Folder, Field(min_length=1), AfterValidator(_literal)]

_SCP: Final = re.compile(r"([^/:]+@[^/:]+):(?!//)(.+)")
"""`git@host:path`, as Git takes it on its command line."""


def _url(url: str) -> str:
    if found := _SCP.fullmatch(url):
        raise ValueError(f"write ssh://{found[1]}/{found[2].lstrip('/')}")
    if not re.match(r"(https?|ssh|file)://.", url):
        raise ValueError("must begin with https://, http:// or ssh://")
    return url


class GitReference(Model):
    """What to follow; the most exact of several wins, as with Flux: commit, name, tag, semver, branch."""

    branch: _Short | None = None
    tag: _Short | None = None
    semver: _Short | None = None
    name: Annotated[str, Field(max_length=255, pattern=r"^refs/.+[^/]$")] | None = None
    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")] | None = None


class GitSpec(Model):
    """A Git repository."""

    url: Annotated[str, Field(max_length=2048), AfterValidator(_url)]
    ref: GitReference = GitReference()
    secret_ref: LocalReference | None = None
    proxy_secret_ref: LocalReference | None = None
    history: Literal["Any", "FastForwardOnly"] = "Any"
    recurse_submodules: bool = False
    sparse_checkout: Annotated[tuple[_Directory, ...], Field(max_length=100)] = ()


class OciReference(Model):
    """What to follow; the most exact of several wins, as with Flux: digest, semver, tag. None is `latest`."""

    tag: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")] | None = None
    semver: _Short | None = None
    semver_filter: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None


class LayerSelector(Model):
    """Which layer holds the files, and how."""

    media_type: _Short | None = None
    operation: Literal["extract", "copy"] = "extract"


class OciSpec(Model):
    """An artifact in a container registry."""

    url: Annotated[str, Field(max_length=2048, pattern=r"^oci://.+$")]
    ref: OciReference = OciReference()
    layer_selector: LayerSelector = LayerSelector()
    secret_ref: LocalReference | None = None
    cert_secret_ref: LocalReference | None = None
    proxy_secret_ref: LocalReference | None = None
    insecure: bool = False


_AWS_STS: Final = r"^https://(vpce-[a-z0-9-]+\.)?sts(-fips)?(\.[a-z]{2}(-[a-z]+)+-[0-9]+)?(\.vpce)?\.amazonaws\.com(\.cn)?/?$"
"""To anybody else the controller's web identity would be shown."""


class StsSpec(Model):
    """The service that gives temporary keys for the controller's web identity."""

    provider: Literal["aws"]
    endpoint: Annotated[str, Field(max_length=255, pattern=_AWS_STS)]


class BucketSpec(Model):
    """Objects in S3 or what speaks its protocol, Google Cloud Storage or Azure Blob Storage."""

    provider: Literal["generic", "aws", "gcp", "azure"] = "generic"
    bucket_name: _Short
    endpoint: Annotated[str, Field(max_length=2048)] = ""
    region: Annotated[str, Field(max_length=255, pattern=r"^[a-z0-9-]*$")] = ""
    prefix: Annotated[str, Field(max_length=1024)] = ""
    insecure: bool = False
    secret_ref: LocalReference | None = None
    cert_secret_ref: LocalReference | None = None
    proxy_secret_ref: LocalReference | None = None
    sts: StsSpec | None = None

    @model_validator(mode="after")
    def _has_identity_for_sts(self) -> Self:
        if self.sts is not None and (self.provider != "aws" or self.secret_ref is not None):
            raise ValueError("sts is there for provider aws without secretRef")
        return self


class SignerGroup(Model):
    """Signers, of which `count` are enough."""

    signers: Annotated[tuple[_Short, ...], Field(min_length=1, max_length=100)]
    count: Annotated[int, Field(ge=1, le=100)] = 1


class VerifyRule(Model):
    """Who may sign what."""

    paths: Annotated[tuple[_Short, ...], Field(min_length=1, max_length=100)]
    any_of: Annotated[tuple[SignerGroup, ...], Field(min_length=1, max_length=20)]
    merges_count: bool = False


_Pattern = Annotated[str, Field(min_length=1, max_length=1024)]


class OidcIdentity(Model):
    """An identity that may sign without a key: expressions (RE2) that match fields of a certificate."""

    issuer: _Pattern
    """The issuer at which the signer logged in, such as
    `^https://token\\.actions\\.githubusercontent\\.com$`.
    """
    subject: _Pattern
    """The signer: a mail address, or the URL of a workflow."""


class VerifySpec(Model):
    """What must be signed, and how: with a key of a Secret, or under an identity."""

    mode: Literal["HEAD", "Tag", "TagAndHEAD", "EveryCommit"] | None = None
    """Of Git; None: HEAD."""
    secret_ref: LocalReference | None = None
    match_oidc_identity: Annotated[
        tuple[OidcIdentity, ...], Field(alias="matchOIDCIdentity", max_length=20)
    ] = ()
    trusted_root_secret_ref: LocalReference | None = None
    rules: Annotated[tuple[VerifyRule, ...], Field(max_length=50)] = ()

    @model_validator(mode="after")
    def _has_all_signatures(self) -> Self:
        if self.rules and self.mode != "EveryCommit":
            raise ValueError("rules need mode EveryCommit: they ask who signed each change")
        return self

    @model_validator(mode="after")
    def _has_somebody_to_believe(self) -> Self:
        if (self.secret_ref is None) == (not self.match_oidc_identity):
            raise ValueError("set exactly one of secretRef, matchOIDCIdentity")
        if self.trusted_root_secret_ref is not None and not self.match_oidc_identity:
            raise ValueError("trustedRootSecretRef needs matchOIDCIdentity")
        return self

    @property
    def keys(self) -> LocalReference:
        """The Secret with the keys; there is one where `match_oidc_identity` is empty."""
        if self.secret_ref is None:
            raise ValueError("there are identities in place of keys")
        return self.secret_ref


class Include(Model):
    """Another FlagSource beside this one, whose files are taken in."""

    repository: LocalReference
    from_path: _Folder = ""
    to_path: _Folder = ""

    @property
    def source_folder(self) -> str:
        """What is taken of its files; empty: all."""
        return _plain(self.from_path)

    @property
    def target_folder(self) -> str:
        """Where they go; empty: among the source's own."""
        return _plain(self.to_path or self.repository.name)


def _plain(path: str) -> str:
    plain = normpath(path)
    return "" if plain == "." else plain


class FlagSourceSpec(Model):
    """What the user asks for."""

    interval: Interval
    timeout: Timeout = 60.0
    suspend: bool = False
    ignore: Annotated[str, Field(max_length=65536)] | None = None
    service_account_name: Name | None = None
    git: GitSpec | None = None
    oci: OciSpec | None = None
    bucket: BucketSpec | None = None
    verify: VerifySpec | None = None
    export: bool = False
    include: Annotated[tuple[Include, ...], Field(max_length=INCLUDE_LIMIT)] = ()

    @model_validator(mode="after")
    def _has_one_provider(self) -> Self:
        if len([name for name in PROVIDERS if getattr(self, name) is not None]) != 1:
            raise ValueError(f"set exactly one of {', '.join(PROVIDERS)}")
        if self.verify is not None and self.bucket is not None and not f"/{self.bucket.prefix}".endswith("/"):
            raise ValueError("verify needs a bucket.prefix that ends in /: a folder is signed")
        if self.verify is not None and self.verify.mode is not None and self.git is None:
            raise ValueError("verify.mode is there for git only")
        if self.verify is not None and self.verify.match_oidc_identity and self.oci is None:
            raise ValueError("verify.matchOIDCIdentity is there for oci only")
        if self.verify is not None and self.verify.rules and self.git and self.git.recurse_submodules:
            raise ValueError(
                "verify.rules and git.recurseSubmodules exclude each other: "
                "rules do not see the files of submodules"
            )
        return self

    @property
    def provider(self) -> str:
        """The field that is set of `PROVIDERS`."""
        return next(name for name in PROVIDERS if getattr(self, name) is not None)

    @property
    def observed(self) -> FlagSourceStatus:
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
    url: str
    revision: str
    digest: str
    last_update_time: str
    size: int | None = None


class FlagSourceStatus(SourceStatus):
    """What was found."""

    last_handled_accept_revision: str | None = None
    observed_ignore: str | None = None
    observed_include: tuple[Include, ...] | None = None
    included_artifacts: tuple[IncludedArtifact, ...] | None = None
    observed_layer_selector: LayerSelector | None = None
    observed_recurse_submodules: bool | None = None
    observed_sparse_checkout: tuple[str, ...] | None = None
    observed_lineage: str | None = None
    observed_verification: str | None = None
