"""Addresses that apprise is given: of the services that we know, and nothing else of all that it knows."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from controller.api.parsing.addresses import AddressRefused
from controller.notifications.forms.services import SERVICES, known
from controller.notifications.sending.apprise_sender import built

ALLOWED: Final = {
    "feishu://t0k-en": "open.feishu.cn",
    "lark://t0k-en": "open.larksuite.com",
    "line://t0k/en=/U1": "api.line.me",
    "pover://user@t0ken/phone": "api.pushover.net",
    "signl4://t0ken": "connect.signl4.com",
    "sns://AKIA1/s/ec%2Fret/us-gov-west-1/flags": "sns.us-gov-west-1.amazonaws.com",
    "tgram://123:t0k-en/-1001:7": "api.telegram.org",
    "tgram://123:t0k-en/@flags/": "api.telegram.org",
    f"twilio://AC{'0' * 32}:{'1' * 32}@15551234567/15557654321": "api.twilio.com",
    f"webex://{'t0k' * 30}": "api.ciscospark.com",
    "webex://t0ken/room": "webexapis.com",
    "wecombot://t0k-en": "qyapi.weixin.qq.com",
    f"wxteams://{'t0k' * 30}": "api.ciscospark.com",
}
SCHEMES: Final = "import apprise; print(*sorted(apprise.NotificationManager().schemas()))"
"""A program of its own, since it imports all services and whatever these try to import."""


def test_these_services_are_allowed() -> None:
    """Another one is to be looked at: its host, what its address may change, the files that it may read."""
    assert SERVICES.keys() == {each.partition("://")[0] for each in ALLOWED}


@pytest.mark.parametrize(("address", "host"), ALLOWED.items())
def test_an_address_says_the_one_host_that_is_asked(address: str, host: str) -> None:
    assert known(address).host == host
    built(address)


def test_whatever_else_apprise_knows_is_refused() -> None:
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCHEMES],
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    ).stdout.split()
    assert {"json", "syslog", "dbus", "mailto", "windows", "ntfy", *SERVICES} <= set(found)
    for scheme in set(found) - SERVICES.keys():
        with pytest.raises(AddressRefused, match="none of the services that are allowed: feishu") as refused:
            known(f"{scheme}://t0ken/t0ken")
        assert "t0ken" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    ["", "t0ken", "://t0ken", "file:///etc/t0ken", "LARK://t0ken", " lark://t0ken", "exec://t0ken",
     "https://hooks.example.com/t0ken"],
)  # fmt: skip
def test_what_apprise_may_learn_one_day_is_refused(address: str) -> None:
    with pytest.raises(AddressRefused, match="none of the services"):
        built(address)


@pytest.mark.parametrize("address", ALLOWED)
@pytest.mark.parametrize(
    "more",
    ["?template=/etc/passwd", "?to=other", "?verify=no", "#x", "@example.com", ":443", ",other", "%20 other",
     "\n", "é", "?"],
)  # fmt: skip
def test_an_address_has_no_parameters_and_no_second_recipient(address: str, more: str) -> None:
    with pytest.raises(AddressRefused, match=r"it must be .*://.*: one recipient, no parameters") as refused:
        built(address + more)
    assert "t0k" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tgram://123:t0ken", "it must be tgram://BOT_TOKEN/CHAT"),
        ("sns://AKIA1/t0ken/nowhere/flags", "it must be sns://KEY/SECRET/REGION/TOPIC"),
        ("webex://t0ken/a%2Cb", "it must name one recipient"),
        ("twilio://t0ken:t0ken@1/2", "apprise does not take it"),
        ("wecombot://t0ken%2F%2E%2E", "apprise does not take it"),
    ],
)
def test_a_wrong_address_is_reported_without_the_token(address: str, words: str) -> None:
    with pytest.raises(AddressRefused, match=words) as refused:
        built(address)
    assert "t0ken" not in str(refused.value)
