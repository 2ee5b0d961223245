"""FlagSource: where flag definitions live."""

from __future__ import annotations

import re
from functools import partial
from posixpath import normpath
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from controller.api.objects.artifact_status import SourceStatus
from controller.api.objects.definition import (
    AGE_COLUMN,
    READY_COLUMN,
    STATUS_COLUMN,
    SUSPENDED_COLUMN,
    Column,
    Definition,
)
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
from controller.api.objects.rules import Rule, RuledModel
from controller.api.objects.schema_words import INT64, TIME, in_schema
from controller.api.parsing import InvalidTextError
from controller.api.parsing.endpoints import require_own_host, url_of
from controller.api.parsing.git_url import Transport, parse_location
from controller.api.parsing.oci_address import DIGEST, TAG, check_digest, check_tag, parse_address
from controller.api.parsing.patterns import compiled, ignored
from controller.api.parsing.reference_names import TAGS
from controller.api.parsing.references import parse_range, require_commit, require_name, short_name
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


def _is_within(path: str) -> bool:
    return not path.startswith("/") and ".." not in path.split("/")


_WITHIN: Final = Rule(
    "!self.matches('^/|(^|/)[.][.](/|$)')",
    "must be a folder within the source: no / at its start, and no ..",
    _is_within,
)
_NO_PATTERN: Final = Rule(
    "!self.matches('^/|(^|/)[.][.](/|$)|[*?[]')",
    "must be a folder within the source, not a pattern: no / at its start, and no ..",
    lambda path: _is_within(path) and not any(mark in path for mark in "*?["),
)
_Folder = Annotated[str, Field(max_length=1024), _WITHIN]
_Directory = Annotated[str, Field(min_length=1, max_length=1024), _NO_PATTERN]

_SCP: Final = re.compile(r"([^/:]+@[^/:]+):(?!//)(.+)")
"""`git@host:path`, as Git takes it on its command line."""


def _url(url: str) -> str:
    if found := _SCP.fullmatch(url):
        raise ValueError(f"write ssh://{found[1]}/{found[2].lstrip('/')}")
    if not re.match(r"(https?|ssh|file)://.", url):
        raise ValueError("must begin with https://, http:// or ssh://")
    parse_location(url)
    return url


_URL_RULES: Final = (
    Rule(
        "self.matches('^(https?|ssh|file)://.+$') || self.matches('^[^/:]+@[^/:]+:')",
        "must begin with https://, http:// or ssh://",
    ),
    Rule(
        "!self.matches('^[^/:]+@[^/:]+:')",
        "write ssh://git@example.com/team/repository.git for git@example.com:team/repository.git",
    ),
    Rule("!self.contains('?')", "a URL must have no query; put a token into the Secret that secretRef names"),
    Rule(
        "!self.matches('^(https?://[^/@]*|[a-z]+://[^/@]*:[^/@]*)@')",
        "a URL must not hold a password or token; put it into the Secret that secretRef names",
    ),
)
"""What the API server refuses; `_url` says more exactly what is wrong."""


class GitReference(Model):
    """What to follow; the most exact of several wins, as with Flux: commit, name, tag, semver, branch."""

    branch: Annotated[_Short, AfterValidator(partial(short_name, "branch"))] | None = None
    """One branch, `main` if nothing is set; `refs/heads/main` is read as `main`."""
    tag: Annotated[_Short, AfterValidator(partial(short_name, "tag"))] | None = None
    """One tag; `refs/tags/v1` is read as `v1`."""
    semver: _Range | None = None
    """A range over the tags, such as `>=1.0.0 <2.0.0`; the highest version is used."""
    name: (
        Annotated[
            str,
            Field(max_length=255),
            in_schema(pattern="^refs/.+[^/]$"),
            that(partial(require_name, "name")),
        ]
        | None
    ) = None
    """A full reference name, such as `refs/heads/main` or `refs/pull/420/head`."""
    commit: Annotated[str, in_schema(pattern="^[0-9a-f]{40}$"), that(require_commit)] | None = None
    """One commit, by all 40 hexadecimal digits. Once fetched it needs no network; with `branch`, the
    revision names the branch.
    """

    @property
    def is_tag(self) -> bool:
        """Whether tags alone are followed."""
        if self.commit is not None:
            return False
        if self.name is not None:
            return self.name.startswith(TAGS)
        return self.tag is not None or self.semver is not None


class GitSpec(Model):
    """A Git repository."""

    url: Annotated[str, Field(max_length=2048), AfterValidator(_url), *_URL_RULES]
    """An `https://`, `http://` or `ssh://` URL without a password, token or query; those belong in the
    Secret of `secretRef`.
    """
    ref: GitReference = GitReference()
    """What to follow. If several are set, the first of `commit`, `name`, `tag`, `semver` and `branch` is
    used, as with Flux.
    """
    secret_ref: LocalReference | None = None
    """A Secret in the same namespace, with [keys](#secrets) as for Flux."""
    proxy_secret_ref: LocalReference | None = None
    """A Secret in the same namespace with the `address` of a proxy for http and https, and `username` and
    `password` if it needs them.
    """
    history: Annotated[Literal["Any", "FastForwardOnly"], in_schema(x_default=None)] = "Any"
    """`FastForwardOnly`: a new revision must descend from the accepted one, as with `verify` in any case.
    `Any` if it is not set.
    """
    recurse_submodules: bool = False
    """Whether the files of [submodules](../artifacts.md#submodules) are in the artifact; they must be on
    the repository's own host.
    """
    sparse_checkout: Annotated[tuple[_Directory, ...], Field(max_length=100)] = ()
    """[Folders](../artifacts.md#folders-of-a-repository) whose files are in the artifact; all folders if
    there are none.
    """

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

    tag: Annotated[str, in_schema(pattern=rf"^{TAG.pattern}$"), that(check_tag)] | None = None
    """One tag, `latest` if nothing is set."""
    semver: _Range | None = None
    """A range over the tags, such as `>=1.0.0 <2.0.0`; the highest version is used."""
    semver_filter: (
        Annotated[str, Field(min_length=1, max_length=1024), that(compiled, "InvalidReference")] | None
    ) = None
    """A regular expression (RE2); with `semver`, only tags that it matches count."""
    digest: Annotated[str, in_schema(pattern=rf"^{DIGEST.pattern}$"), that(check_digest)] | None = None
    """One manifest, by its digest."""


class LayerSelector(Model):
    """Which layer holds the files, and how."""

    media_type: _Short | None = None
    """The first layer with this media type."""
    operation: Literal["extract", "copy"] = "extract"
    """`extract`: the files in the layer's tar.gz. `copy`: the layer as one file, named by its title."""


class OciSpec(Model):
    """An artifact in a container registry."""

    url: Annotated[str, Field(max_length=2048), in_schema(pattern="^oci://.+$"), that(parse_address)]
    """The repository, `oci://HOST/REPOSITORY`, without a tag, which belongs in `ref`."""
    ref: OciReference = OciReference()
    """What to follow. If several are set, the first of `digest`, `semver` and `tag` is used, as with Flux."""
    layer_selector: LayerSelector = LayerSelector()
    """Which layer holds the files, and how; the first layer, a tar.gz, if it is not set."""
    secret_ref: LocalReference | None = None
    """A Secret in the same namespace of type `kubernetes.io/dockerconfigjson`."""
    cert_secret_ref: LocalReference | None = None
    """A Secret in the same namespace: `ca.crt` is trusted in addition to the system's authorities;
    `tls.crt` and `tls.key` are presented to the registry.
    """
    proxy_secret_ref: LocalReference | None = None
    """A Secret in the same namespace with the `address` of an http proxy, and `username` and `password` if
    it needs them.
    """
    insecure: bool = False
    """Whether to speak plain HTTP with the registry."""


_AWS_STS: Final = r"^https://(vpce-[a-z0-9-]+\.)?sts(-fips)?(\.[a-z]{2}(-[a-z]+)+-[0-9]+)?(\.vpce)?\.amazonaws\.com(\.cn)?/?$"
"""Hosts of AWS STS: no other host may receive the controller's web identity."""


class StsSpec(Model):
    """The service that gives temporary keys for the controller's web identity."""

    provider: Literal["aws"]
    """The provider of the service."""
    endpoint: Annotated[str, Field(max_length=255, pattern=_AWS_STS)]
    """The URL of the service, such as `https://sts.eu-west-1.amazonaws.com`; only hosts of AWS, which
    receive the identity.
    """


_IDENTITY: Final = (
    "without secretRef, aws, azure and gcp use the controller's own identity, which is sent by no proxy, "
    "authority or connection of yours: remove proxySecretRef, certSecretRef and insecure, or set secretRef"
)


class BucketSpec(RuledModel):
    """Objects in S3 or what speaks its protocol, Google Cloud Storage or Azure Blob Storage."""

    RULES = (
        Rule(
            "has(self.endpoint) && self.endpoint != '' || "
            "has(self.provider) && self.provider in ['aws', 'gcp']",
            "endpoint is required for the providers generic and azure",
        ),
        Rule(
            "!has(self.endpoint) || !self.endpoint.startsWith('http://') || "
            "has(self.insecure) && self.insecure",
            "an http:// endpoint needs insecure",
        ),
        Rule(
            "!has(self.sts) || has(self.provider) && self.provider == 'aws' && !has(self.secretRef)",
            "sts works only with provider aws and without secretRef",
            lambda bucket: bucket.sts is None or (bucket.provider == "aws" and bucket.secret_ref is None),
        ),
        Rule(
            "has(self.secretRef) || !has(self.provider) || self.provider == 'generic' || "
            "!has(self.proxySecretRef) && !has(self.certSecretRef) && !(has(self.insecure) && self.insecure)",
            _IDENTITY,
        ),
    )

    provider: Literal["generic", "aws", "gcp", "azure"] = "generic"
    """The kind of store; `generic` for any that speaks the protocol of S3."""
    bucket_name: _Short
    """The name of the bucket, or of the container in Azure."""
    endpoint: Annotated[str, Field(max_length=2048)] = ""
    """The host of the store, with its port if needed, or its https URL. For `aws` and `gcp` only if it is
    not the usual one.
    """
    region: Annotated[str, Field(max_length=255, pattern=r"^[a-z0-9-]*$")] = ""
    """The region of the bucket; `us-east-1` if it is not set."""
    prefix: Annotated[str, Field(max_length=1024)] = ""
    """The prefix of the keys to read, best a folder with a slash at its end."""
    insecure: bool = False
    """Whether to read an `endpoint` without a scheme as plain HTTP, and to accept `http://`."""
    secret_ref: LocalReference | None = None
    """A Secret in the same namespace, with keys as for Flux: `accesskey` and `secretkey`; `serviceaccount`
    for gcp; `accountKey`, `sasKey`, or `tenantId`, `clientId` and `clientSecret` for azure. Without it,
    `generic` has anonymous access, and the others use the controller's identity.
    """
    cert_secret_ref: LocalReference | None = None
    """A Secret in the same namespace: `ca.crt` is trusted for the store."""
    proxy_secret_ref: LocalReference | None = None
    """A Secret in the same namespace with the `address` of a proxy, and `username` and `password` if it
    needs them.
    """
    sts: StsSpec | None = None
    """The service that exchanges the controller's web identity (IRSA) for temporary keys; that of the
    region if it is not set.
    """

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
        Rule(
            "[has(self.git), has(self.oci), has(self.bucket)].exists_one(each, each)",
            "set exactly one of git, oci, bucket",
            lambda spec: [spec.git, spec.oci, spec.bucket].count(None) == 2,
        ),
        Rule(
            "!has(self.verify) || !has(self.bucket) || !has(self.bucket.prefix) || "
            "self.bucket.prefix == '' || self.bucket.prefix.endsWith('/')",
            "verify needs a bucket.prefix that ends in /: a folder is signed",
            lambda spec: spec.verify is None or spec.bucket is None or _is_folder(spec.bucket),
        ),
        Rule(
            "!has(self.verify) || !has(self.verify.mode) || has(self.git)",
            "verify.mode works only with git",
            lambda spec: spec.verify is None or spec.verify.mode is None or spec.git is not None,
        ),
        Rule(
            "!has(self.verify) || !has(self.verify.matchOIDCIdentity) || "
            "size(self.verify.matchOIDCIdentity) == 0 || has(self.oci)",
            "verify.matchOIDCIdentity works only with oci",
            lambda spec: spec.verify is None or not spec.verify.match_oidc_identity or spec.oci is not None,
        ),
        Rule(
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
    ignore: Annotated[str, Field(max_length=65536), that(ignored)] | None = None
    """Patterns of files that are not in the artifact, as in [`.gitignore`](../artifacts.md#ignore). They
    replace the default ones.
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
    """Other FlagSources in the same namespace whose files are [in the artifact](../artifacts.md#include)."""

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


DEFINITION: Final = Definition(
    KIND,
    "flagsources",
    "fsrc",
    "FlagSource says where flag definitions live, and keeps an artifact of what is there.",
    spec=FlagSourceSpec,
    spec_description="Where definitions live, and how often they are looked for.",
    status=FlagSourceStatus,
    columns=(
        READY_COLUMN,
        Column("Revision", ".status.artifact.revision"),
        Column("Since", ".status.artifact.lastUpdateTime", "date"),
        SUSPENDED_COLUMN,
        AGE_COLUMN,
        STATUS_COLUMN,
        Column("URL", ".spec.git.url", priority=1),
    ),
)
