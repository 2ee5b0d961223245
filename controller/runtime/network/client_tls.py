"""TLS to other people's servers, with certificates of a Secret."""

from __future__ import annotations

import ssl
from functools import lru_cache
from typing import TYPE_CHECKING

from controller.runtime.process.temporary import TemporaryFolder
from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.user_text.private_keys import read_private_key

if TYPE_CHECKING:
    from controller.runtime.user_text.secret_texts import Tls


@lru_cache(maxsize=64)
def context_of(tls: Tls) -> ssl.SSLContext:
    """The system's authorities and the Secret's, and our own certificate. Raises Stalled (InvalidSecret).
    Blocks for milliseconds.
    """
    try:
        context = ssl.create_default_context()
        if tls.authority:
            context.load_verify_locations(cadata=tls.authority)
        if tls.certificate:
            _load_certificate(context, tls)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or "they do not fit together"
        message = f"the certificates of certSecretRef cannot be used: {reason}"
        raise Stalled("InvalidSecret", message) from error
    return context


def _load_certificate(context: ssl.SSLContext, tls: Tls) -> None:
    try:
        _, key = read_private_key(tls.key)
    except ValueError as error:
        raise Stalled("InvalidSecret", f"'tls.key' of certSecretRef cannot be used: {error}") from None
    # The ssl module takes a client's certificate from files alone.
    folder = TemporaryFolder.make()
    try:
        own, private = folder.path / "tls.crt", folder.path / "tls.key"
        own.write_text(tls.certificate, encoding="utf-8")
        private.write_text(key, encoding="utf-8")
        context.load_cert_chain(own, private)
    finally:
        folder.remove()
