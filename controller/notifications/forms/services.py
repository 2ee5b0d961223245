"""E-mail, and the allowed services of the library apprise: their addresses and messages. Pure.

Each allowed service has one host, which no part of the address can change. Others of apprise, such as files,
programs, the desktop, self-hosted servers and remote configurations, are refused.
Forms of addresses: https://github.com/caronc/apprise/wiki#notification-services
Mail: https://www.rfc-editor.org/rfc/rfc5322; TLS, also by STARTTLS: https://www.rfc-editor.org/rfc/rfc8314
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.api.parsing.addresses import AddressRefused

if TYPE_CHECKING:
    from controller.notifications.forms.posts import Notice, Post

APPRISE: Final = "apprise"


@dataclass(frozen=True, slots=True)
class Service:
    """One address format of one class of apprise."""

    module: str
    """Module name below `apprise.plugins`."""
    class_: str
    shape: str
    """The address format for messages, without the scheme; capitals are placeholders."""
    pattern: re.Pattern[str]
    """Matches the whole address after the scheme: one recipient, no options."""
    host: str
    """The service's only host; `{region}` is that of the address."""


class ParsedAddress(NamedTuple):
    """A parsed address."""

    service: Service
    host: str


_PART: Final = r"[\w.~%=+!*()$&'-]+"
"""A part of an address: without `/ ? # @ :` and the separators of recipients."""


def _service(module: str, class_: str, host: str, shape: str, pattern: str) -> Service:
    return Service(module, class_, shape, re.compile(pattern.replace("PART", _PART), re.ASCII), host)


_WEBEX: Final = (
    _service("webexteams", "NotifyWebexTeams", "api.ciscospark.com", "WEBHOOK_TOKEN", r"[A-Za-z0-9]{80,160}"),
    _service("webexteams", "NotifyWebexTeams", "webexapis.com", "BOT_TOKEN/ROOM", r"PART/PART"),
)
_SNS: Final = r"PART(/PART)+?/(?P<region>[a-z]{2}-[a-z-]+-\d)/PART"
SERVICES: Final[dict[str, tuple[Service, ...]]] = {
    "feishu": (_service("feishu", "NotifyFeishu", "open.feishu.cn", "TOKEN", r"PART"),),
    "lark": (_service("lark", "NotifyLark", "open.larksuite.com", "TOKEN", r"PART"),),
    "line": (_service("line", "NotifyLine", "api.line.me", "TOKEN/USER", r"PART(/PART)+"),),
    "pover": (
        _service(
            "pushover", "NotifyPushover", "api.pushover.net", "USER@TOKEN[/DEVICE]", r"PART@PART(/PART)?"
        ),
    ),
    "signl4": (_service("signl4", "NotifySIGNL4", "connect.signl4.com", "SECRET", r"PART"),),
    "sns": (
        _service("sns", "NotifySNS", "sns.{region}.amazonaws.com", "KEY/SECRET/REGION/TOPIC", _SNS),
    ),
    "tgram": (
        _service(
            "telegram", "NotifyTelegram", "api.telegram.org", "BOT_TOKEN/CHAT[:TOPIC]",
            r"\d+:[\w-]+/(-?\d{1,32}|@?[A-Za-z_][\w-]+)(:\d+)?",
        ),
    ),
    "twilio": (
        _service("twilio", "NotifyTwilio", "api.twilio.com", "ACCOUNT:TOKEN@FROM/TO", r"PART:PART@PART/PART"),
    ),
    "webex": _WEBEX,
    "wecombot": (_service("wecombot", "NotifyWeComBot", "qyapi.weixin.qq.com", "KEY", r"PART"),),
    "wxteams": _WEBEX,
}  # fmt: skip
"""Services by the scheme of their address."""


def known(address: str) -> ParsedAddress:
    """Return the service of an address. Raises AddressRefused, whose text repeats only the scheme."""
    scheme, _, rest = address.partition("://")
    if scheme not in SERVICES:
        what = f"{scheme}:// is" if re.fullmatch(r"[a-z0-9+.-]{1,32}", scheme) and rest else "this is"
        raise AddressRefused(f"{what} none of the services that are allowed: {', '.join(sorted(SERVICES))}")
    for service in SERVICES[scheme]:
        if (match := service.pattern.fullmatch(rest.removesuffix("/"))) is not None:
            return ParsedAddress(service, service.host.format(**match.groupdict()))
    shapes = " or ".join(f"{scheme}://{each.shape}" for each in SERVICES[scheme])
    raise AddressRefused(f"it must be {shapes}: one recipient, no parameters, other characters as %XX")


def apprise(notice: Notice) -> Post:
    """Return the arguments of apprise, which builds the service's request."""
    calm = "info" if notice.message.severity == "info" else "warning"
    kind = {"failing": "failure", "recovered": "success", None: calm}[notice.message.state]
    return notice.post({"title": notice.title, "body": notice.plain, "type": kind})


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
