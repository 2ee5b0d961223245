"""A certificate authority as Fulcio is one, with its certificate transparency log."""

from __future__ import annotations

import hashlib
import struct
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes

LIFE = timedelta(minutes=10)
_SCTS = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_FULCIO = "1.3.6.1.4.1.57264.1."


def shape(key: ec.EllipticCurvePublicKey) -> bytes:
    """Its SubjectPublicKeyInfo, whose hash names a log."""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


class Authority:
    """A root, an intermediate that certifies signers, and a log of what that certified."""

    def __init__(self) -> None:
        root_key, self._key, self.log_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        self._log = self.log_key
        self.root = _authority("root", root_key.public_key(), "root", root_key, 1)
        self.intermediate = _authority("intermediate", self._key.public_key(), "root", root_key, 0)
        self.age = timedelta(minutes=1)
        """How long ago certificates begin to count, for `LIFE`."""

    def forge_log(self) -> None:
        """Have another key than the log's sign what it promises."""
        self._log = ec.generate_private_key(ec.SECP256R1())

    def certify(
        self, key: CertificateIssuerPublicKeyTypes, issuer: str, subject: str, *, old: bool = False
    ) -> x509.Certificate:
        """For a login as `subject` with `issuer`. `old`: without the newer form of the issuer."""
        begin = _now() - self.age
        name = x509.UniformResourceIdentifier(subject) if "://" in subject else x509.RFC822Name(subject)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.intermediate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + LIFE)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(_issued_by(self._key.public_key()), critical=False)
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(_extension("1", issuer.encode()), critical=False)
        )
        if not old:
            made = made.add_extension(_extension("8", asn1.encode_der(issuer)), critical=False)
        promised = self._promise(made.sign(self._key, hashes.SHA256()), begin)
        return made.add_extension(promised, critical=False).sign(self._key, hashes.SHA256())

    def _promise(self, certificate: x509.Certificate, at: datetime) -> x509.UnrecognizedExtension:
        """That the log will have it (RFC 6962, section 3.2 and 3.3)."""
        milliseconds = int(at.timestamp() * 1000)
        content = certificate.tbs_certificate_bytes
        issuer = hashlib.sha256(shape(self._key.public_key())).digest()
        signed = struct.pack("!BBQH", 0, 0, milliseconds, 1) + issuer
        signed += len(content).to_bytes(3, "big") + content + b"\0\0"
        signature = self._log.sign(signed, ec.ECDSA(hashes.SHA256()))
        log = hashlib.sha256(shape(self.log_key.public_key())).digest()
        promise = b"\0" + log + struct.pack("!QH", milliseconds, 0)
        promise += b"\x04\x03" + len(signature).to_bytes(2, "big") + signature
        listed = len(promise).to_bytes(2, "big") + promise
        return x509.UnrecognizedExtension(_SCTS, asn1.encode_der(len(listed).to_bytes(2, "big") + listed))


def timestamp_chain(key: ec.EllipticCurvePublicKey) -> list[x509.Certificate]:
    """A certificate for signing timestamps with `key`, and that of its own authority."""
    by = ec.generate_private_key(ec.SECP256R1())
    root = _authority("time root", by.public_key(), "time root", by, 0)
    made = (
        x509.CertificateBuilder()
        .subject_name(_name("time"))
        .issuer_name(root.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(root.not_valid_before_utc)
        .not_valid_after(root.not_valid_after_utc)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(_issued_by(by.public_key()), critical=False)
        .sign(by, hashes.SHA256())
    )
    return [made, root]


def _authority(
    name: str, key: ec.EllipticCurvePublicKey, issuer: str, by: ec.EllipticCurvePrivateKey, length: int
) -> x509.Certificate:
    begin = _now() - timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=True, path_length=length), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(_issued_by(by.public_key()), critical=False)
        .sign(by, hashes.SHA256())
    )


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - signers compare it with their own clock


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _issued_by(key: ec.EllipticCurvePublicKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)


def _extension(number: str, content: bytes) -> x509.UnrecognizedExtension:
    return x509.UnrecognizedExtension(x509.ObjectIdentifier(_FULCIO + number), content)


def _usage(**those: bool) -> x509.KeyUsage:
    uses = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{each: those.get(each, False) for each in uses})
