"""The bucket of a FlagSource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from controller.api.objects.fields import LocalReference, Model, ShortText, SpecProblem
from controller.api.objects.rules import Rule, RuledModel
from controller.api.parsing import InvalidTextError
from controller.api.parsing.endpoints import require_own_host, url_of

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        routed = self.proxy_secret_ref is not None or self.cert_secret_ref is not None or self.insecure
        if self.uses_own_identity and routed:
            yield SpecProblem("spec.bucket", _IDENTITY, "IdentityDenied")

    @property
    def uses_own_identity(self) -> bool:
        """Whether the controller's own identity in the cloud reads the bucket."""
        return self.secret_ref is None and self.provider != "generic"
