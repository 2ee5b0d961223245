"""The certificates that our servers are known by, and the authorities that sign them: made, renewed and
published.

Replacement leaves no moment in which clients trust none that is in use.

The authority's key lies beside the server's: a holder of either could answer for us anyway, and only those
clients trust this authority. A new authority is trusted for an hour before it signs.

Certificates are kept in the Secret that the server's pods mount, and, by the leader, in what its clients
trust.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller.runtime.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.runtime.process import Role


AUTHORITY_LIFE: Final = timedelta(days=3650)
AUTHORITY_LEFT: Final = timedelta(days=730)
"""An authority that expires sooner gets a successor."""
LIFE: Final = timedelta(days=90)
LEFT: Final = timedelta(days=30)
"""A certificate that expires sooner is renewed."""
TRUSTED_FOR: Final = timedelta(hours=1)
"""How long an authority is published before it signs, so that every client trusts it by then."""
_SKEW: Final = timedelta(minutes=5)
"""Greatest difference between the clocks of replicas and clients that is allowed for."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """A certificate, its key and its authorities, all in PEM."""

    certificate: bytes
    key: bytes
    authorities: bytes
    """All authorities to be trusted; the last one signs."""
    authority_key: bytes
    """The key of the last authority."""

    def data(self) -> dict[str, bytes]:
        """Return the data of a Secret."""
        return {
            "tls.crt": self.certificate, "tls.key": self.key,
            "ca.crt": self.authorities, "ca.key": self.authority_key,
        }  # fmt: skip


def certificates_of(data: Mapping[str, bytes]) -> Certificates | None:
    """Return the certificates in a Secret, or None if they cannot be used."""
    try:
        certificates = Certificates(data["tls.crt"], data["tls.key"], data["ca.crt"], data["ca.key"])
        leaf = x509.load_pem_x509_certificate(certificates.certificate)
        signing = _last(certificates.authorities)
        pairs = ((leaf, _load_key(certificates.key)), (signing, _load_key(certificates.authority_key)))
    except (KeyError, ValueError, TypeError, IndexError):
        return None
    return (
        certificates
        if all(certificate.public_key() == key.public_key() for certificate, key in pairs)
        else None
    )


def renew(current: Certificates | None, names: Sequence[str], now: datetime) -> Certificates:
    """Return `current`, or its replacement at `now`, for a server of these names and addresses."""
    if current is None or _last(current.authorities).not_valid_before_utc > now:
        authority, key = _authority(names[0], now)
        return _sign(_pem(authority), _pem_of_key(key), names, now)
    trusted = [
        certificate
        for certificate in x509.load_pem_x509_certificates(current.authorities)
        if certificate.not_valid_after_utc > now
        or certificate.public_key() == _load_key(current.authority_key).public_key()
    ]
    if trusted[-1].not_valid_after_utc - now < AUTHORITY_LEFT:
        authority, key = _authority(names[0], now)
        bundle = b"".join(map(_pem, (*trusted, authority)))
        return Certificates(current.certificate, current.key, bundle, _pem_of_key(key))
    leaf = x509.load_pem_x509_certificate(current.certificate)
    left = leaf.not_valid_after_utc - now
    known = now - trusted[-1].not_valid_before_utc >= TRUSTED_FOR
    # Not valid yet: it was made while a clock was ahead.
    invalid = left <= timedelta(0) or leaf.not_valid_before_utc > now
    if invalid or _names_of(leaf) != set(names) or (left < LEFT and known):
        return _sign(b"".join(map(_pem, trusted)), current.authority_key, names, now)
    return current


def _last(authorities: bytes) -> x509.Certificate:
    """The one that signs."""
    return x509.load_pem_x509_certificates(authorities)[-1]


def _authority(server: str, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{server} {now:%Y-%m-%d}")
    made = (
        _builder(name, name, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return made.sign(key, hashes.SHA256()), key


def _sign(authorities: bytes, authority_key: bytes, names: Sequence[str], now: datetime) -> Certificates:
    """A new certificate, by the last authority."""
    authority, signing = _last(authorities), _load_key(authority_key)
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        _builder(_name(names[0]), authority.subject, key.public_key(), now, LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
    )
    certificate = _pem(made.sign(signing, hashes.SHA256()))
    return Certificates(certificate, _pem_of_key(key), authorities, authority_key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + life)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_of(certificate: x509.Certificate) -> set[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in extension.value}


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _load_key(key: bytes) -> ec.EllipticCurvePrivateKey:
    private_key = serialization.load_pem_private_key(key, None)
    if not isinstance(private_key, ec.EllipticCurvePrivateKey):
        raise TypeError("not a key of ours")
    return private_key


log = logging.getLogger(__name__)

STARTING: Final = "starting"
KEPT: Final = "kept"
ABSENT: Final = "not installed"


class CertificateStore(Protocol):
    """Stores certificates for all replicas."""

    now: datetime
    """The cluster's time at the last read: clients verify by it even if our clock is wrong."""

    async def read(self) -> Mapping[str, bytes] | None:
        """Return the Secret's content, or None if there is no such Secret. Raises Setback."""

    async def write(self, data: Mapping[str, bytes]) -> bool:
        """Replace what `read` returned last; return False if another replica was faster. Raises Setback."""

    async def trust(self, authorities: bytes) -> None:
        """Make clients trust these authorities and no others. Raises Setback."""


@dataclass(slots=True)
class CertificateRotation:
    """Renews the certificates on one replica. Run `check` with `forever`."""

    owner: str
    """The owner of the certificates, for the log."""
    store: CertificateStore
    names: Sequence[str]
    role: Role
    pause: float = 5.0
    """Seconds from one check to the next; each makes two small reads."""
    state: str = STARTING
    """The state for /readyz: starting, kept, not installed, or why nothing can be read."""
    _complaint: str = field(default="")

    async def check(self) -> None:
        """Compare the stored and trusted certificates once."""
        try:
            state, complaint = await self._settle(), ""
        except Setback as setback:
            complaint = setback.message
            state = self.state if self.state == KEPT else complaint
        if complaint not in {"", self._complaint}:
            log.warning("certificates of %s cannot be kept: %s", self.owner, complaint)
        self._complaint = complaint
        if state != self.state:
            log.info("certificates of %s: %s", self.owner, state)
            self.state = state
        await asyncio.sleep(self.pause)

    async def _settle(self) -> str:
        data = await self.store.read()
        if data is None:
            return ABSENT
        stored = certificates_of(data)
        wanted = renew(stored, self.names, self.store.now)
        if wanted != stored and not await self.store.write(wanted.data()):
            # The next check reads what the faster replica wrote.
            return self.state
        if self.role.leading:
            await self.store.trust(wanted.authorities)
        return KEPT
