"""FlagSource: where flag definitions live."""

from __future__ import annotations

import re
from functools import partial
from posixpath import normpath
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from controller.api.objects.artifact import SourceStatus
from controller.api.objects.fields import (
    Interval,
    LocalReference,
    Model,
    ObjectName,
    SpecProblem,
    Timeout,
    refuse,
    that,
)
from controller.api.parsing import InvalidTextError
from controller.api.parsing.endpoints import require_own_host, url_of
from controller.api.parsing.git_url import Transport, parse_location
from controller.api.parsing.oci_address import check_digest, check_tag, parse_address
from controller.api.parsing.patterns import compiled, ignored
from controller.api.parsing.references import parse_range, require_commit, require_name
from controller.api.verification import TAG_MODES, VerifySpec

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_Range = Annotated[_Short, that(parse_range)]


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
    parse_location(url)
    return url


class GitReference(Model):
    """What to follow; the most exact of several wins, as with Flux: commit, name, tag, semver, branch."""

    branch: Annotated[_Short, that(partial(require_name, "branch"))] | None = None
    tag: Annotated[_Short, that(partial(require_name, "tag"))] | None = None
    semver: _Range | None = None
    name: Annotated[str, Field(max_length=255), that(partial(require_name, "name"))] | None = None
    commit: Annotated[str, that(require_commit)] | None = None

    @property
    def is_tag(self) -> bool:
        """Whether tags alone are followed."""
        if self.commit is not None:
            return False
        if self.name is not None:
            return self.name.startswith("refs/tags/")
        return self.tag is not None or self.semver is not None


class GitSpec(Model):
    """A Git repository."""

    url: Annotated[str, Field(max_length=2048), AfterValidator(_url)]
    ref: GitReference = GitReference()
    secret_ref: LocalReference | None = None
    proxy_secret_ref: LocalReference | None = None
    history: Literal["Any", "FastForwardOnly"] = "Any"
    recurse_submodules: bool = False
    sparse_checkout: Annotated[tuple[_Directory, ...], Field(max_length=100)] = ()

    @model_validator(mode="after")
    def _has_a_remote_for_submodules(self) -> Self:
        if self.recurse_submodules and self.url.startswith("file:"):
            refuse([SpecProblem("recurseSubmodules", "needs a remote repository, not a file:// URL")])
        return self

    def cluster_problems(self) -> Iterator[SpecProblem]:
        """Return the problems in a cluster, which has no keys of a user."""
        if self.secret_ref is None and parse_location(self.url).transport is Transport.SSH:
            message = "ssh needs a Secret with 'identity' and 'known_hosts'; name it here"
            yield SpecProblem("spec.git.secretRef", message, "AuthenticationFailed")


class OciReference(Model):
    """What to follow; the most exact of several wins, as with Flux: digest, semver, tag. None is `latest`."""

    tag: Annotated[str, that(check_tag)] | None = None
    semver: _Range | None = None
    semver_filter: (
        Annotated[str, Field(min_length=1, max_length=1024), that(compiled, "InvalidReference")] | None
    ) = None
    digest: Annotated[str, that(check_digest)] | None = None


class LayerSelector(Model):
    """Which layer holds the files, and how."""

    media_type: _Short | None = None
    operation: Literal["extract", "copy"] = "extract"


class OciSpec(Model):
    """An artifact in a container registry."""

    url: Annotated[str, Field(max_length=2048), that(parse_address)]
    ref: OciReference = OciReference()
    layer_selector: LayerSelector = LayerSelector()
    secret_ref: LocalReference | None = None
    cert_secret_ref: LocalReference | None = None
    proxy_secret_ref: LocalReference | None = None
    insecure: bool = False


_AWS_STS: Final = r"^https://(vpce-[a-z0-9-]+\.)?sts(-fips)?(\.[a-z]{2}(-[a-z]+)+-[0-9]+)?(\.vpce)?\.amazonaws\.com(\.cn)?/?$"
"""Hosts of AWS STS: no other host may receive the controller's web identity."""


class StsSpec(Model):
    """The service that gives temporary keys for the controller's web identity."""

    provider: Literal["aws"]
    endpoint: Annotated[str, Field(max_length=255, pattern=_AWS_STS)]


_IDENTITY: Final = (
    "without secretRef, aws, azure and gcp use the controller's own identity, which is sent by no proxy, "
    "authority or connection of yours: remove proxySecretRef, certSecretRef and insecure, or set secretRef"
)


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
            raise ValueError("sts works only with provider aws and without secretRef")
        return self

    @property
    def store_url(self) -> str:
        """The URL of the store; empty: the provider's own. Raises InvalidTextError."""
        return url_of(self.provider, self.endpoint, insecure=self.insecure)

    def cluster_problems(self) -> Iterator[SpecProblem]:
        """Return the problems in a cluster, which has no identity or endpoint of a user."""
        try:
            url = self.store_url
            if self.secret_ref is None:
                require_own_host(self.provider, url)
        except InvalidTextError as error:
            yield SpecProblem("spec.bucket.endpoint", str(error), error.reason)
        routed = self.proxy_secret_ref is not None or self.cert_secret_ref is not None or self.insecure
        if self.uses_own_identity and routed:
            yield SpecProblem("spec.bucket", _IDENTITY, "IdentityDenied")

    @property
    def uses_own_identity(self) -> bool:
        """Whether the controller's own identity in the cloud reads the bucket."""
        return self.secret_ref is None and self.provider != "generic"


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
        """Return the folder that the included files are put in; empty: the root."""
        return _plain(self.to_path or self.repository.name)


def _plain(path: str) -> str:
    plain = normpath(path)
    return "" if plain == "." else plain


class FlagSourceSpec(Model):
    """What the user asks for."""

    interval: Interval
    timeout: Timeout = 60.0
    suspend: bool = False
    ignore: Annotated[str, Field(max_length=65536), that(ignored)] | None = None
    service_account_name: ObjectName | None = None
    git: GitSpec | None = None
    oci: OciSpec | None = None
    bucket: BucketSpec | None = None
    verify: VerifySpec | None = None
    export: bool = False
    include: Annotated[tuple[Include, ...], Field(max_length=INCLUDE_LIMIT)] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        refuse(self._conflicts())
        return self

    def _conflicts(self) -> Iterator[SpecProblem]:
        if len([name for name in PROVIDERS if getattr(self, name) is not None]) != 1:
            yield SpecProblem("", f"set exactly one of {', '.join(PROVIDERS)}")
        if self.verify is not None:
            yield from self._conflicts_of(self.verify)

    def _conflicts_of(self, verify: VerifySpec) -> Iterator[SpecProblem]:
        if self.bucket is not None and not f"/{self.bucket.prefix}".endswith("/"):
            yield SpecProblem("", "verify needs a bucket.prefix that ends in /: a folder is signed")
        if verify.mode is not None and self.git is None:
            yield SpecProblem("", "verify.mode works only with git")
        if verify.mode in TAG_MODES and self.git is not None and not self.git.ref.is_tag:
            message = f"{verify.mode} needs a tag: set spec.git.ref.tag or semver, or take mode HEAD"
            yield SpecProblem("verify.mode", message, "InvalidVerificationMode")
        if verify.match_oidc_identity and self.oci is None:
            yield SpecProblem("", "verify.matchOIDCIdentity works only with oci")
        if verify.rules and self.git is not None and self.git.recurse_submodules:
            message = "verify.rules and git.recurseSubmodules exclude each other"
            yield SpecProblem("", f"{message}: rules do not see the files of submodules")

    def cluster_problems(self) -> Iterator[SpecProblem]:
        """See Model: the problems of its provider."""
        yield from getattr(self, self.provider).cluster_problems()

    @property
    def provider(self) -> str:
        """Return the name of the field that is set, one of `PROVIDERS`."""
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
