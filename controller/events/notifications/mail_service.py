"""E-mail of a message. Pure.

https://www.rfc-editor.org/rfc/rfc5322
"""

from __future__ import annotations

from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controller.events.notifications.notice import Notice, Post


def email(notice: Notice) -> Post:
    """Return a text mail; a retry has the same Message-ID."""
    message, target = notice.message, notice.target
    sender, recipient = target.spec.username or "", target.spec.channel or ""
    # Every server accepts 7-bit content.
    mail = EmailMessage(SMTP.clone(cte_type="7bit"))
    mail["From"], mail["To"] = sender, recipient
    mail["Subject"] = f"{notice.title}: {message.reason}"
    mail["Date"] = format_datetime(datetime.fromisoformat(message.time))
    mail["Message-ID"] = f"<{message.key}@flagstaff.dev>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(notice.plain)
    headers = {"Content-Type": "message/rfc822", "From": sender, "To": recipient}
    return notice.post(mail.as_bytes(), **headers, Authorization=target.token)
