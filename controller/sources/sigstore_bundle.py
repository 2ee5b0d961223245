"""Judges Sigstore's bundles by its own library, which is large: meant to be imported in a helper process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from cryptography.hazmat import asn1
from cryptography.x509 import (
    Certificate,
    ExtensionNotFound,
    ObjectIdentifier,
    OtherName,
    RFC822Name,
    SubjectAlternativeName,
    UniformResourceIdentifier,
    UnrecognizedExtension,
)
from pydantic import ValidationError
from sigstore.errors import CertValidationError, MetadataError
from sigstore.models import Bundle, ClientTrustConfig
from sigstore.verify import Verifier

from controller.runtime.plain_text import one_line
from controller.sources.backend import NotBelievedError, Signer
from controller.sources.cosign import InvalidRootError, SignerIdentity, require_statement

if TYPE_CHECKING:
    from collections.abc import Sequence

_ISSUER: Final = ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
_OLD_ISSUER: Final = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
"""The issuer as bare text; certificates of older authorities have it in this form only."""
_USER_NAME: Final = ObjectIdentifier("1.3.6.1.4.1.57264.1.7")
_LONGEST: Final = 255
_SHOWN_LENGTH: Final = 200
_CONFIGURATION: Final = "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json"
_SIGNING: Final = "application/vnd.dev.sigstore.signingconfig.v0.2+json"


class IdentityPolicy:
    """Lets certificates of some identities through; the library asks it once their authority is verified."""

    def __init__(self, identities: Sequence[SignerIdentity]) -> None:
        self._identities = identities
        self.signer = Signer("")
        """The signer whose certificate was accepted."""

    def verify(self, cert: Certificate) -> None:
        """Raises NotBelievedError."""
        issuer, subjects = _issuer(cert), _subjects(cert)
        for subject in subjects:
            if any(identity.covers(issuer, subject) for identity in self._identities):
                self.signer = Signer(f"keyless {_shorten(issuer)}", _shorten(subject))
                return
        signer = ", ".join(map(_shorten, subjects[:3])) or "no identity"
        raise NotBelievedError(
            f"its certificate is for {signer} (keyless {_shorten(issuer)}), which is not a trusted identity"
        )


def verify(bundle: bytes, digest: str, root: str, identities: Sequence[SignerIdentity]) -> Signer:
    """See `keyless.verify_keyless`."""
    verifier = _verifier(root)
    policy = IdentityPolicy(identities)
    try:
        kind, payload = verifier.verify_dsse(Bundle.from_json(bundle), policy)
    except (NotBelievedError, MemoryError):
        raise
    except MetadataError as error:
        raise InvalidRootError(_error_text(error)) from None
    except CertValidationError as error:
        why = "its certificate is not from the trusted root, or was not valid at the time of the signature"
        raise NotBelievedError(f"{why}: {_error_text(error)}") from None
    except Exception as error:  # noqa: BLE001 - a stranger's bytes are not believed, whatever they lead to
        raise NotBelievedError(f"its bundle does not prove who signed: {_error_text(error)}") from None
    require_statement(kind, payload, digest)
    return policy.signer


def _verifier(root: str) -> Verifier:
    try:
        configuration = {
            "mediaType": _CONFIGURATION,
            "trustedRoot": json.loads(root),
            "signingConfig": {"mediaType": _SIGNING},
        }
        trusted = ClientTrustConfig.from_json(json.dumps(configuration)).trusted_root
        return Verifier(trusted_root=trusted)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the Secret may hold anything
        raise InvalidRootError(_error_text(error)) from None


def _issuer(certificate: Certificate) -> str:
    for oid in (_ISSUER, _OLD_ISSUER):
        try:
            extension = certificate.extensions.get_extension_for_oid(oid).value
        except ExtensionNotFound:
            continue
        if isinstance(extension, UnrecognizedExtension):
            content = extension.value
            return asn1.decode_der(str, content) if oid == _ISSUER else content.decode()
    raise NotBelievedError("its certificate does not say who let the signer log in")


def _subjects(certificate: Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    others = [name for name in names.get_values_for_type(OtherName) if name.type_id == _USER_NAME]
    return [
        *names.get_values_for_type(RFC822Name),
        *names.get_values_for_type(UniformResourceIdentifier),
        *(asn1.decode_der(str, name.value) for name in others),
    ]


def _shorten(text: str) -> str:
    return one_line(text, _LONGEST)


def _error_text(error: Exception) -> str:
    """What the library says, without the values that it quotes: they may be of a Secret."""
    cause = error if isinstance(error, ValidationError) else error.__context__
    text = str(error)
    if isinstance(cause, ValidationError):
        details = cause.errors(include_url=False, include_context=False, include_input=False)[0]
        text = f"{'.'.join(map(str, details['loc']))}: {details['msg']}"
    return one_line(text, _SHOWN_LENGTH) or type(error).__name__
