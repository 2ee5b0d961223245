"""Parts of a FlagSource's spec: a Git repository, an artifact in a registry or a bucket, and what must be
signed.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from controller.api.addresses import (
    DIGEST,
    TAG,
    Transport,
    check_digest,
    check_tag,
    parse_address,
    parse_location,
    require_own_host,
    require_own_registry,
    url_of,
)
from controller.api.fields import (
    LocalReference,
    Model,
    RuledModel,
    ShortText,
    SpecProblem,
    SpecRule,
    VersionRange,
    in_schema,
    refuse,
    that,
)
from controller.api.parsing import (
    InvalidTextError,
    compile_pattern,
    is_within_source,
    of_files,
    require_somebody,
)
from controller.api.references import TAGS, require_commit, require_name, short_name

if TYPE_CHECKING:
    from collections.abc import Iterator


_Identity = Annotated[str, Field(min_length=1, max_length=1024), that(require_somebody, "InvalidIdentity")]


class SignerGroup(Model):
    """Signers, of which `count` are enough."""

    signers: Annotated[tuple[ShortText, ...], Field(min_length=1, max_length=100)]
    """Names or mail addresses as in the keys, or fingerprints of keys."""
    count: Annotated[int, Field(ge=1, le=100)] = 1
    """How many of them must have signed."""


def _patterns(paths: tuple[str, ...]) -> tuple[str, ...]:
    try:
        of_files(paths)
    except InvalidTextError as error:
        raise InvalidTextError(f"{', '.join(paths)[:200]}: {error}") from None
    return paths


class VerifyRule(Model):
    """Who may sign what."""

    paths: Annotated[tuple[ShortText, ...], Field(min_length=1, max_length=100), AfterValidator(_patterns)]
    """Patterns as in `.gitignore`."""
    any_of: Annotated[tuple[SignerGroup, ...], Field(min_length=1, max_length=20)]
    """Groups of signers, of which one is enough."""
    merges_count: bool = False
    """Whether the signer of a merge signs all that the merge brings to its first parent, as a pull does;
    otherwise only what none of its parents has.
    """


class OidcIdentity(Model):
    """An identity that may sign without a key: expressions (RE2) that match fields of a certificate."""

    issuer: _Identity
    """A regular expression (RE2) that finds something in the URL of who let the signer log in; write ^ and
    $ for the whole of it.
    """
    subject: _Identity
    """A regular expression (RE2) that finds something in the signer's mail address, or in the URL of the
    workflow that signed; write ^ and $ for the whole of it.
    """


class VerifySpec(RuledModel):
    """What must be signed, and how: with a key of a Secret, or under an identity."""

    RULES = (
        SpecRule(
            "has(self.secretRef) != (has(self.matchOIDCIdentity) && size(self.matchOIDCIdentity) > 0)",
            "set exactly one of secretRef, matchOIDCIdentity",
            lambda verify: (verify.secret_ref is not None) != bool(verify.match_oidc_identity),
        ),
        SpecRule(
            "!has(self.trustedRootSecretRef) || "
            "has(self.matchOIDCIdentity) && size(self.matchOIDCIdentity) > 0",
            "trustedRootSecretRef needs matchOIDCIdentity",
            lambda verify: verify.trusted_root_secret_ref is None or bool(verify.match_oidc_identity),
        ),
        SpecRule(
            "!has(self.rules) || size(self.rules) == 0 || has(self.mode) && self.mode == 'EveryCommit'",
            "rules need mode EveryCommit: they ask who signed each change",
            lambda verify: not verify.rules or verify.mode == "EveryCommit",
        ),
    )

    mode: Literal["HEAD", "Tag", "TagAndHEAD", "EveryCommit"] | None = None
    """What of a Git repository must be signed: the newest commit (HEAD), the tag that is followed (Tag),
    both (TagAndHEAD), or every commit since the accepted one (EveryCommit). Without it, HEAD.
    """
    secret_ref: LocalReference | None = None
    """A Secret beside this object with public keys: of git *.asc (PGP), *.sshpub (SSH), or allowed_signers
    as ssh-keygen has it; of oci and bucket *.pub (PEM, as cosign writes them).
    """
    match_oidc_identity: Annotated[
        tuple[OidcIdentity, ...], Field(alias="matchOIDCIdentity", max_length=20)
    ] = ()
    """Of oci, in place of keys: who must have signed without one (cosign's keyless signatures), as Flux's
    OCIRepository has it. One of the list is enough.
    """
    trusted_root_secret_ref: LocalReference | None = None
    """A Secret beside this object with trusted_root.json, the certificates and keys of a Sigstore instance
    of your own. Without it, those of the public one.
    """
    rules: Annotated[tuple[VerifyRule, ...], Field(max_length=50)] = ()
    """Who may sign what, by path, with mode `EveryCommit`. A path that no rule names may be signed with any
    trusted key.
    """

    @property
    def keys(self) -> LocalReference:
        """The Secret with the keys; there is one where `match_oidc_identity` is empty."""
        if self.secret_ref is None:
            raise ValueError("there are identities in place of keys")
        return self.secret_ref


DEFAULT_BRANCH: Final = "main"
_NO_PATTERN: Final = SpecRule(
    "!self.matches('^/|(^|/)[.][.](/|$)|[*?[]')",
    "must be a folder within the source, not a pattern: no / at its start, and no ..",
    lambda path: is_within_source(path) and not any(mark in path for mark in "*?["),
)
_Directory = Annotated[str, Field(min_length=1, max_length=1024), _NO_PATTERN]


_SCP: Final = re.compile(r"([^/:]+@[^/:]+):(?!//)(.+)")
"""`git@host:path`, as Git takes it on its command line."""


def _repository_url(url: str) -> str:
    if short_form := _SCP.fullmatch(url):
        raise ValueError(f"write ssh://{short_form[1]}/{short_form[2].lstrip('/')}")
    if not re.match(r"(https?|ssh|file)://.", url):
        raise ValueError("must begin with https://, http:// or ssh://")
    parse_location(url)
    return url


_URL_RULES: Final = (
    SpecRule(
        "self.matches('^(https?|ssh|file)://.+$') || self.matches('^[^/:]+@[^/:]+:')",
        "must begin with https://, http:// or ssh://",
    ),
    SpecRule(
        "!self.matches('^[^/:]+@[^/:]+:')",
        "write ssh://git@example.com/team/repository.git for git@example.com:team/repository.git",
    ),
    SpecRule(
        "!self.contains('?')", "a URL must have no query; put a token into the Secret that secretRef names"
    ),
    SpecRule(
        "!self.matches('^(https?://[^/@]*|[a-z]+://[^/@]*:[^/@]*)@')",
        "a URL must not hold a password or token; put it into the Secret that secretRef names",
    ),
)
"""What the API server refuses; `_repository_url` says more exactly what is wrong."""


class GitReference(Model):
    """What to follow; the most exact of several wins, as with Flux: commit, name, tag, semver, branch."""

    branch: Annotated[ShortText, AfterValidator(partial(short_name, "branch"))] | None = None
    """One branch, `main` if nothing is set; `refs/heads/main` is read as `main`."""
    tag: Annotated[ShortText, AfterValidator(partial(short_name, "tag"))] | None = None
    """One tag; `refs/tags/v1` is read as `v1`."""
    semver: VersionRange | None = None
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

    url: Annotated[str, Field(max_length=2048), AfterValidator(_repository_url), *_URL_RULES]
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
    """Whether the files of [submodules](../reference/artifacts.md#submodules) are in the artifact; they must
    be on the repository's own host.
    """
    sparse_checkout: Annotated[tuple[_Directory, ...], Field(max_length=100)] = ()
    """[Folders](../reference/artifacts.md#folders-of-a-repository) whose files are in the artifact; all
    folders if there are none.
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
    semver: VersionRange | None = None
    """A range over the tags, such as `>=1.0.0 <2.0.0`; the highest version is used."""
    semver_filter: (
        Annotated[str, Field(min_length=1, max_length=1024), that(compile_pattern, "InvalidReference")] | None
    ) = None
    """A regular expression (RE2); with `semver`, only tags that it matches count."""
    digest: Annotated[str, in_schema(pattern=rf"^{DIGEST.pattern}$"), that(check_digest)] | None = None
    """One manifest, by its digest."""


class LayerSelector(Model):
    """Which layer holds the files, and how."""

    media_type: ShortText | None = None
    """The first layer with this media type."""
    operation: Literal["extract", "copy"] = "extract"
    """`extract`: the files in the layer's tar.gz. `copy`: the layer as one file, named by its title."""


_IDENTITY: Final = (
    "without secretRef, aws, azure and gcp use the controller's own identity, which is sent by no proxy, "
    "authority or connection of yours: remove proxySecretRef, certSecretRef and insecure, or set secretRef"
)
_IDENTITY_RULE: Final = SpecRule(
    "has(self.secretRef) || !has(self.provider) || self.provider == 'generic' || "
    "!has(self.proxySecretRef) && !has(self.certSecretRef) && !(has(self.insecure) && self.insecure)",
    _IDENTITY,
)


def _identity_problems(spec: OciSpec | BucketSpec, field: str) -> Iterator[SpecProblem]:
    """Return the problem of the spec's `field`, if the identity would take a way of the source's."""
    routed = spec.proxy_secret_ref is not None or spec.cert_secret_ref is not None or spec.insecure
    if spec.uses_own_identity and routed:
        yield SpecProblem(f"spec.{field}", _IDENTITY, "IdentityDenied")


class OciSpec(RuledModel):
    """An artifact in a container registry."""

    RULES = (_IDENTITY_RULE,)

    url: Annotated[str, Field(max_length=2048), in_schema(pattern="^oci://.+$"), that(parse_address)]
    """The repository, `oci://HOST/REPOSITORY`, without a tag, which belongs in `ref`."""
    ref: OciReference = OciReference()
    """What to follow. If several are set, the first of `digest`, `semver` and `tag` is used, as with Flux."""
    layer_selector: LayerSelector = LayerSelector()
    """Which layer holds the files, and how; the first layer, a tar.gz, if it is not set."""
    provider: Literal["generic", "aws", "azure", "gcp"] = "generic"
    """Without `secretRef`, `aws`, `azure` and `gcp` log in with the controller's own identity: to
    registries of Amazon (ECR), Azure (ACR) and Google.
    """
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

    def cluster_problems(self) -> Iterator[SpecProblem]:
        """Return the problems in a cluster, which has no login of a user."""
        if self.uses_own_identity:
            try:
                require_own_registry(self.provider, parse_address(self.url))
            except InvalidTextError as error:
                yield SpecProblem("spec.oci.url", str(error), error.reason)
        yield from _identity_problems(self, "oci")

    @property
    def uses_own_identity(self) -> bool:
        """Whether the controller's own identity in the cloud reads the artifact."""
        return self.secret_ref is None and self.provider != "generic"


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


class BucketSpec(RuledModel):
    """Objects in S3 or what speaks its protocol, Google Cloud Storage or Azure Blob Storage."""

    RULES = (
        SpecRule(
            "has(self.endpoint) && self.endpoint != '' || "
            "has(self.provider) && self.provider in ['aws', 'gcp']",
            "endpoint is required for the providers generic and azure",
        ),
        SpecRule(
            "!has(self.endpoint) || !self.endpoint.startsWith('http://') || "
            "has(self.insecure) && self.insecure",
            "an http:// endpoint needs insecure",
        ),
        SpecRule(
            "!has(self.sts) || has(self.provider) && self.provider == 'aws' && !has(self.secretRef)",
            "sts works only with provider aws and without secretRef",
            lambda bucket: bucket.sts is None or (bucket.provider == "aws" and bucket.secret_ref is None),
        ),
        _IDENTITY_RULE,
    )

    provider: Literal["generic", "aws", "gcp", "azure"] = "generic"
    """The kind of store; `generic` for any that speaks the protocol of S3."""
    bucket_name: ShortText
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
        yield from _identity_problems(self, "bucket")

    @property
    def uses_own_identity(self) -> bool:
        """Whether the controller's own identity in the cloud reads the bucket."""
        return self.secret_ref is None and self.provider != "generic"
