"""`spec.verify` of a FlagSource: what must be signed, and by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from controller.api.objects.fields import LocalReference, Model, SpecProblem, refuse, that
from controller.api.parsing import InvalidTextError
from controller.api.parsing.patterns import of_files, require_somebody

if TYPE_CHECKING:
    from collections.abc import Iterator

_Short = Annotated[str, Field(min_length=1, max_length=255)]
_Identity = Annotated[str, Field(min_length=1, max_length=1024), that(require_somebody, "InvalidIdentity")]


class SignerGroup(Model):
    """Signers, of which `count` are enough."""

    signers: Annotated[tuple[_Short, ...], Field(min_length=1, max_length=100)]
    count: Annotated[int, Field(ge=1, le=100)] = 1


def _patterns(paths: tuple[str, ...]) -> tuple[str, ...]:
    try:
        of_files(paths)
    except InvalidTextError as error:
        raise InvalidTextError(f"{', '.join(paths)[:200]}: {error}") from None
    return paths


class VerifyRule(Model):
    """Who may sign what."""

    paths: Annotated[tuple[_Short, ...], Field(min_length=1, max_length=100), AfterValidator(_patterns)]
    any_of: Annotated[tuple[SignerGroup, ...], Field(min_length=1, max_length=20)]
    merges_count: bool = False


class OidcIdentity(Model):
    """An identity that may sign without a key: expressions (RE2) that match fields of a certificate."""

    issuer: _Identity
    """The issuer at which the signer logged in, such as
    `^https://token\\.actions\\.githubusercontent\\.com$`.
    """
    subject: _Identity
    """The signer: a mail address, or the URL of a workflow."""


TAG_MODES: Final = ("Tag", "TagAndHEAD")
"""Modes that need a tag."""


class VerifySpec(Model):
    """What must be signed, and how: with a key of a Secret, or under an identity."""

    mode: Literal["HEAD", "Tag", "TagAndHEAD", "EveryCommit"] | None = None
    """Which objects of a Git source must be signed; None: HEAD."""
    secret_ref: LocalReference | None = None
    match_oidc_identity: Annotated[
        tuple[OidcIdentity, ...], Field(alias="matchOIDCIdentity", max_length=20)
    ] = ()
    trusted_root_secret_ref: LocalReference | None = None
    rules: Annotated[tuple[VerifyRule, ...], Field(max_length=50)] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        refuse(self._conflicts())
        return self

    def _conflicts(self) -> Iterator[SpecProblem]:
        if self.rules and self.mode != "EveryCommit":
            yield SpecProblem("", "rules need mode EveryCommit: they ask who signed each change")
        if (self.secret_ref is None) == (not self.match_oidc_identity):
            yield SpecProblem("", "set exactly one of secretRef, matchOIDCIdentity")
        if self.trusted_root_secret_ref is not None and not self.match_oidc_identity:
            yield SpecProblem("", "trustedRootSecretRef needs matchOIDCIdentity")

    @property
    def keys(self) -> LocalReference:
        """The Secret with the keys; there is one where `match_oidc_identity` is empty."""
        if self.secret_ref is None:
            raise ValueError("there are identities in place of keys")
        return self.secret_ref
