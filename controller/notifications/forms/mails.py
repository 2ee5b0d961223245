"""Messages as e-mail, and the servers that take them. Pure.

Text: https://www.rfc-editor.org/rfc/rfc5322
TLS, from the beginning or by STARTTLS: https://www.rfc-editor.org/rfc/rfc8314
"""

from __future__ import annotations

import re
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final

from controller.notifications import addresses
from controller.notifications.addresses import AddressRefused

if TYPE_CHECKING:
    from controller.api.provider import FlagProviderSpec
    from controller.notifications.forms.posts import Notice, Post

TYPE: Final = "email"
PORTS: Final = {"smtp": 587, "smtps": 465}
"""By the scheme of the address: with STARTTLS, and with TLS from the beginning."""
_MAILBOX: Final = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}", re.ASCII)


def require_usable(spec: FlagProviderSpec, address: str, *, allow_local: bool) -> None:
    """Raises AddressRefused for an address that is no mail server's, and for mailboxes that are none."""
    parts = addresses.split(address)
    if parts.scheme not in PORTS or parts.path.strip("/") or parts.query or parts.fragment:
        raise AddressRefused("it must be smtps://HOST, or smtp://HOST for a server with STARTTLS")
    addresses.require_usable(f"https://{parts.netloc}", allow_local=allow_local)
    for name, mailbox in (("channel", spec.channel), ("username", spec.username)):
        if not _MAILBOX.fullmatch(mailbox or ""):
            raise AddressRefused(f"spec.{name} must be one mailbox, such as flags@example.com")
    if spec.proxy_secret_ref is not None:
        raise AddressRefused("no proxy leads to a mail server; leave out spec.proxySecretRef")


def email(notice: Notice) -> Post:
    """A text; sent again it has the same Message-ID."""
    message, target = notice.message, notice.target
    sender, recipient = target.spec.username or "", target.spec.channel or ""
    # Any server takes seven bits.
    mail = EmailMessage(SMTP.clone(cte_type="7bit"))
    mail["From"], mail["To"] = sender, recipient
    mail["Subject"] = f"{notice.title}: {message.reason}"
    mail["Date"] = format_datetime(datetime.fromisoformat(message.time))
    mail["Message-ID"] = f"<{message.key}@flagstaff.dev>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(notice.plain)
    headers = {"Content-Type": "message/rfc822", "From": sender, "To": recipient}
    return notice.post(mail.as_bytes(), **headers, Authorization=target.token)
