"""Messages as e-mail, and the servers that take them. Pure.

Text: https://www.rfc-editor.org/rfc/rfc5322
TLS, from the beginning or by STARTTLS: https://www.rfc-editor.org/rfc/rfc8314
"""

from __future__ import annotations

from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final

from controller.notifications.forms.posts import plain, posted, title

if TYPE_CHECKING:
    from controller.api.provider import Message
    from controller.notifications.forms.posts import Post, Target

TYPE: Final = "email"
_POLICY: Final = SMTP.clone(cte_type="7bit")
"""Any server takes seven bits."""


def email(message: Message, target: Target) -> Post:
    """A text; sent again it has the same Message-ID."""
    sender, recipient = target.spec.username or "", target.spec.channel or ""
    mail = EmailMessage(_POLICY)
    mail["From"], mail["To"] = sender, recipient
    mail["Subject"] = f"{title(message, target)}: {message.reason}"
    mail["Date"] = format_datetime(datetime.fromisoformat(message.time))
    mail["Message-ID"] = f"<{message.key}@flagstaff.dev>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(plain(message))
    headers = {"Content-Type": "message/rfc822", "From": sender, "To": recipient}
    return posted(target.address, message, mail.as_bytes(), **headers, Authorization=target.token)
