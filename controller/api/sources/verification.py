"""`spec.verify` of a FlagSource: what must be signed, and by whom."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from controller.api.objects.fields import LocalReference, Model, ShortText, that
from controller.api.objects.rules import Rule, RuledModel
from controller.api.parsing import InvalidTextError
from controller.api.parsing.patterns import of_files, require_somebody

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


TAG_MODES: Final = ("Tag", "TagAndHEAD")
"""Modes that need a tag."""


class VerifySpec(RuledModel):
    """What must be signed, and how: with a key of a Secret, or under an identity."""

    RULES = (
        Rule(
            "has(self.secretRef) != (has(self.matchOIDCIdentity) && size(self.matchOIDCIdentity) > 0)",
            "set exactly one of secretRef, matchOIDCIdentity",
            lambda verify: (verify.secret_ref is not None) != bool(verify.match_oidc_identity),
        ),
        Rule(
            "!has(self.trustedRootSecretRef) || "
            "has(self.matchOIDCIdentity) && size(self.matchOIDCIdentity) > 0",
            "trustedRootSecretRef needs matchOIDCIdentity",
            lambda verify: verify.trusted_root_secret_ref is None or bool(verify.match_oidc_identity),
        ),
        Rule(
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
