"""E-mail, and the services that the library apprise may be asked for: their addresses, and messages. Pure.

Each service of apprise has one host, which no part of the address can change. What apprise knows beside
these, such as files, programs, the desktop, servers of one's own and configurations elsewhere, is refused.
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

from controller.notifications import addresses
from controller.notifications.addresses import AddressRefused

if TYPE_CHECKING:
    from controller.api.provider import FlagProviderSpec
    from controller.notifications.forms.posts import Notice, Post

APPRISE: Final = "apprise"
EMAIL: Final = "email"
MAIL_PORTS: Final = {"smtp": 587, "smtps": 465}
"""By the scheme of the address: with STARTTLS, and with TLS from the beginning."""
_MAILBOX: Final = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Service:
    """One form of address, of one class of apprise."""

    module: str
    """Below `apprise.plugins`."""
    class_: str
    shape: str
    """The address as people write it, without the scheme; capitals stand for what they fill in."""
    pattern: re.Pattern[str]
    """All of the address that follows the scheme: one recipient, and no options."""
    host: str
    """The only one that is asked; `{region}` is that of the address."""


class Known(NamedTuple):
    """What an address says."""

    service: Service
    host: str


_PART: Final = r"[\w.~%=+!*()$&'-]+"
"""A part of an address: without `/ ? # @ :`, and without what would separate several recipients."""


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
"""By the scheme of the address."""


def known(address: str) -> Known:
    """The service that an address names. Raises AddressRefused, without repeating more than the scheme."""
    scheme, _, rest = address.partition("://")
    if scheme not in SERVICES:
        what = f"{scheme}:// is" if re.fullmatch(r"[a-z0-9+.-]{1,32}", scheme) and rest else "this is"
        raise AddressRefused(f"{what} none of the services that are allowed: {', '.join(sorted(SERVICES))}")
    for service in SERVICES[scheme]:
        if (match := service.pattern.fullmatch(rest.removesuffix("/"))) is not None:
            return Known(service, service.host.format(**match.groupdict()))
    shapes = " or ".join(f"{scheme}://{each.shape}" for each in SERVICES[scheme])
    raise AddressRefused(f"it must be {shapes}: one recipient, no parameters, other characters as %XX")


def require_secret(address: str | None) -> None:
    """Raises AddressRefused for an `address` in the spec, where more people read it than should."""
    if address is not None:
        raise AddressRefused("it holds a token: write it into the Secret of spec.secretRef")


def apprise(notice: Notice) -> Post:
    """The arguments of apprise, which makes the service's own request of them."""
    calm = "info" if notice.message.severity == "info" else "warning"
    kind = {"failing": "failure", "recovered": "success", None: calm}[notice.message.state]
    return notice.post({"title": notice.title, "body": notice.plain, "type": kind})


def require_mail(spec: FlagProviderSpec, address: str, *, allow_local: bool) -> None:
    """Raises AddressRefused for an address that is no mail server's, and for mailboxes that are none."""
    parts = addresses.split(address)
    if parts.scheme not in MAIL_PORTS or parts.path.strip("/") or parts.query or parts.fragment:
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
