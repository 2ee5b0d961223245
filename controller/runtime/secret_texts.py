"""Texts and keys of a Secret, read and checked, and the only hosts that may receive them.

The author of a Secret may have meant another kind of content.

No message repeats a value: a message names the Secret and its keys only.

Private keys are used within the bound of the event loop.

OpenSSL holds the interpreter while it tests the primes of an RSA key, or completes a DSA key, which takes
seconds for keys of a few kilobytes; and signatures are made on the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlsplit

from controller.runtime.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from evaluator.flags.problems import Problem


ALLOWED_HOSTS: Final = "flagstaff.dev/allowed-hosts"
"""The annotation of a Secret: names and globs, separated by commas."""
REASON: Final = "SecretHostDenied"


_MOST: Final = 64
_LONGEST_PATTERN: Final = 253
"""Most characters of a host or glob: matching all of them takes a seventh of a second at most."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The hosts that may receive a Secret."""

    namespace: str = ""
    name: str = ""
    hosts: tuple[str, ...] | None = None
    """Names and globs; None: any host."""
    required: bool = False
    """Whether the installation asks for the annotation."""

    def require(self, host: str) -> None:
        """Raise Stalled (SecretHostDenied) for a host that the Secret may not be shown to."""
        host = host.strip("[]").lower().rstrip(".")
        if self.hosts is None and not self.required:
            return
        hosts = self.hosts or ()
        if len(hosts) > _MOST or any(len(pattern) > _LONGEST_PATTERN for pattern in hosts):
            why = f"may have {_MOST} hosts at most, of {_LONGEST_PATTERN} characters"
        elif any(fnmatchcase(host, pattern.lower()) for pattern in hosts):
            return
        else:
            why = "does not name it" if self.hosts is not None else "is missing, and must be there"
        raise Stalled(
            REASON,
            f"Secret {self.namespace}/{self.name} may not be used for host {host}: its annotation "
            f"{ALLOWED_HOSTS} {why}",
        )

    def require_free(self, subject: str) -> None:
        """Raise Stalled (SecretHostDenied) for a Secret of certain hosts that is to become `subject`."""
        if self.hosts is not None:
            raise Stalled(
                REASON,
                f"Secret {self.namespace}/{self.name} may not be used for {subject}: its annotation "
                f"{ALLOWED_HOSTS} binds it to hosts",
            )

    def require_annotation(self) -> Binding:
        """Return the binding for an installation that requires the annotation."""
        return replace(self, required=True)


UNBOUND: Final = Binding()
"""The binding of content that is not from a cluster."""


class SecretContent(dict[str, bytes]):
    """A Secret's content by key."""

    def __init__(self, content: Mapping[str, bytes], binding: Binding) -> None:
        super().__init__(content)
        self.binding = binding


def binding_of(content: Mapping[str, bytes]) -> Binding:
    """The binding of a Secret."""
    return content.binding if isinstance(content, SecretContent) else UNBOUND


def hosts_of(annotation: str | None) -> tuple[str, ...] | None:
    """Return the hosts that an annotation names, or None."""
    if annotation is None:
        return None
    return tuple(host.strip() for host in annotation.split(",") if host.strip())


_LONGEST_VALUE: Final = 64 * 1024
"""Bytes of one value: a bundle of certificates has less, and it is written to a file for each run of git."""
_LONGEST_PROXY: Final = 2048
"""Most characters of a proxy's URL, as in Flux."""


class Tls(NamedTuple):
    """Certificates in PEM; empty where there is none."""

    authority: str = ""
    """The authorities that the server's certificate is verified against."""
    certificate: str = ""
    """The client's own, with any intermediates."""
    key: str = ""
    """The private key of `certificate`."""


class PemBlock(NamedTuple):
    """One block of a text in PEM."""

    label: str
    """`CERTIFICATE`, `EC PRIVATE KEY`, …"""
    text: str
    """The whole block, with its first and last line."""

    @property
    def content(self) -> str:
        """The lines between the first and the last."""
        return "\n".join(self.text.split("\n")[1:-1])

    @property
    def encrypted(self) -> bool:
        """Whether a passphrase protects it, in PKCS #8 or in OpenSSL's older form."""
        return self.label == "ENCRYPTED PRIVATE KEY" or "\nProc-Type: 4,ENCRYPTED\n" in self.text


_BEGIN: Final = "-----BEGIN "
_END: Final = "-----END "
_DASHES: Final = "-----"


def pem_blocks(text: str) -> Iterator[PemBlock]:
    """Return the complete blocks of a text, in time linear to its length: a line that begins a block discards
    an incomplete one before it.
    """
    label = ""
    lines: list[str] = []
    for line in text.split("\n"):
        line = line.rstrip()  # noqa: PLW2901 - a line without the space at its end
        if line.startswith(_BEGIN) and line.endswith(_DASHES):
            label, lines = line[len(_BEGIN) : -len(_DASHES)], []
        if label:
            lines.append(line)
        if label and line == f"{_END}{label}{_DASHES}":
            yield PemBlock(label, "\n".join(lines))
            label = ""


class SecretTexts:
    """One Secret's texts by their keys."""

    def __init__(self, name: str, content: Mapping[str, bytes]) -> None:
        self.name = name
        """`namespace/name`, or what else the content is from."""
        self.content = content

    def invalid(self, why: str) -> Stalled:
        """Return the setback for an error in the Secret."""
        return Stalled("InvalidSecret", f"Secret {self.name}: {why}")

    @property
    def binding(self) -> Binding:
        """The only hosts that may receive it."""
        return binding_of(self.content)

    def require_host(self, host: str) -> None:
        """Raise Stalled for a host that may not receive the Secret."""
        self.binding.require(host)

    def text(self, key: str) -> str:
        """Return a text; empty if absent."""
        raw = self.content.get(key, b"")
        if len(raw) > _LONGEST_VALUE:
            raise self.invalid(f"{key!r} is longer than {_LONGEST_VALUE} bytes")
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise self.invalid(f"{key!r} is not UTF-8 text") from None
        if "\0" in text:
            raise self.invalid(f"{key!r} contains a NUL character")
        return text.replace("\r\n", "\n")

    def line(self, key: str) -> str:
        """Return one line without the line break at its end."""
        text = self.text(key).removesuffix("\n")
        if not text.isprintable():
            raise self.invalid(f"{key!r} contains a line break or a control character")
        return text

    def require(self, key: str, purpose: str) -> str:
        """Return a required text."""
        if text := self.text(key).strip():
            return text
        has = ", ".join(map(repr, sorted(self.content)[:10])) or "no key at all"
        raise self.invalid(f"key {key!r} is missing, which is required {purpose}; the Secret has {has}")

    def pem(self, key: str, kind: str) -> str:
        """Blocks of PEM, one of them at least of `kind`; empty where there is none."""
        text = self.text(key).strip()
        if text and not any(kind in block.label for block in pem_blocks(text)):
            raise self.invalid(f"{key!r} contains no {kind.lower()} in PEM format")
        return text

    def tls(self) -> Tls:
        """`ca.crt` (or `caFile`), and `tls.crt` with `tls.key`."""
        certificate = self.pem("tls.crt", "CERTIFICATE")
        key = self.pem("tls.key", "PRIVATE KEY")
        if any(block.encrypted for block in pem_blocks(key)):
            raise self.invalid("'tls.key' is encrypted: store the key without a passphrase")
        if bool(certificate) != bool(key):
            has, lacks = ("tls.crt", "tls.key") if certificate else ("tls.key", "tls.crt")
            raise self.invalid(f"has {has!r} without {lacks!r}")
        authority = self.pem("ca.crt", "CERTIFICATE") or self.pem("caFile", "CERTIFICATE")
        return Tls(authority, certificate, key)


def proxy_url(secret: SecretTexts, schemes: Sequence[str]) -> str:
    """Return a proxy's URL, with username and password if given. Raises Stalled (InvalidSecret)."""
    address = secret.require("address", "for a proxy")
    try:
        parts = urlsplit(address)
        known = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, known = urlsplit(""), False
    if not known or len(address) > _LONGEST_PROXY or parts.query or parts.fragment:
        written = ", ".join(f"{scheme}://" for scheme in schemes)
        raise secret.invalid(f"'address' is not a proxy URL; write one of {written} with a host")
    if parts.username is not None:
        raise secret.invalid("'address' holds a username: write 'username' and 'password' instead")
    username, password = secret.line("username"), secret.line("password")
    if password and not username:
        raise secret.invalid("has 'password' without 'username'")
    if username:
        pair = f"{quote(username, safe='')}:{quote(password, safe='')}"
        parts = parts._replace(netloc=f"{pair}@{parts.netloc}")
    return parts.geturl()


_WITHHELD: Final = "{} (the words are withheld, since it contains a value of a Secret)"
_HARMLESS: Final = frozenset({"decryption-failed", "secret-place", "variable-place", "variables-too-large"})
"""Codes of problems whose words quote no value."""


def withhold_messages(
    problems: Iterable[Problem], secret: Callable[[str | None], bool]
) -> tuple[Problem, ...]:
    """The problems, without the words of those about a flag that is `secret`, by key: they may quote it."""
    return tuple(
        replace(problem, message=_WITHHELD.format(problem.code))
        if secret(problem.flag) and problem.code not in _HARMLESS
        else problem
        for problem in problems
    )
