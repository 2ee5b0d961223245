from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.api.addresses import Transport, parse_location
from controller.api.parsing import InvalidTextError
from controller.runtime.setbacks import Stalled
from controller.sources.git_credentials import Credentials, credentials_in

SECRET = "s3cr3t-token"  # noqa: S105 - it guards nothing


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/srv/flags", "/srv/flags"), ("flags", "flags"), (".", "."), ("./-odd", "./-odd"),
        ("./a:b", "./a:b"), ("file:///srv/my%20flags.git", "/srv/my flags.git"),
        ("file://localhost/srv/flags", "/srv/flags"),
    ],
)  # fmt: skip
def test_a_folder_is_a_local_repository(text: str, path: str) -> None:
    assert parse_location(text).path == Path(path)


@pytest.mark.parametrize(
    ("text", "transport", "url"),
    [
        ("https://h/r.git", Transport.HTTPS, "https://h/r.git"),
        ("HTTPS://H.example/r", Transport.HTTPS, "https://h.example/r"),
        ("http://h:8080/r", Transport.HTTP, "http://h:8080/r"),
        ("https://[::1]:8443/r", Transport.HTTPS, "https://[::1]:8443/r"),
        ("https://u:p%40ss@h/r", Transport.HTTPS, "https://h/r"),
        ("ssh://git@h:2222/r.git", Transport.SSH, "ssh://git@h:2222/r.git"),
        ("ssh://h/~/r", Transport.SSH, "ssh://h/~/r"),
        ("git@h.example:team/r.git", Transport.SSH, "git@h.example:team/r.git"),
        ("h:r", Transport.SSH, "h:r"),
        ("git@[::1]:r", Transport.SSH, "git@[::1]:r"),
    ],
)
def test_a_remote_is_read_from_its_url(text: str, transport: Transport, url: str) -> None:
    location = parse_location(text)
    assert (location.transport, location.url, location.path) == (transport, url, None)


@pytest.mark.parametrize(
    "text",
    [
        "", " /srv/flags", "/srv/fl\nags", "--upload-pack=touch x", "-oProxyCommand=touch x",
        "ext::sh -c touch% x", "fd::17", "transport::https://h/r", "git://h/r", "ftp://h/r", "ext://h/r",
        "ssh://-oProxyCommand=touch/r", "ssh://-x@h/r", "ssh://u:p@h/r", "ssh://h/r?x", "-x@h:r", "u@-h:r",
        "h:-r", "u@h%25:r", "https:///r", "https://h", "https://h/", "https://h:port/r", "https://h:99999/r",
        "https://ho%73t/r", "https://h/r#main", "https://h/r?x=1", "https://[::1/r", "file://host/r",
        "file:///", "file:///r%00", "file:///r?x",
    ],
)  # fmt: skip
def test_what_is_no_place_of_a_repository_is_refused(text: str) -> None:
    with pytest.raises(InvalidTextError) as refused:
        parse_location(text)
    assert refused.value.reason == "URLInvalid"


@pytest.mark.parametrize(
    ("text", "credentials"),
    [
        (f"https://me:{SECRET}@h/r", Credentials("me", SECRET)),
        (f"https://me:{SECRET}%0@h/r", Credentials("me", SECRET + "%0")),
        (f"https://{SECRET}@h/r", Credentials(SECRET, "")),
        (f"https://:{SECRET}@h/r", Credentials("git", SECRET)),
    ],
)
def test_a_url_gives_up_its_secrets_before_it_is_shown(text: str, credentials: Credentials | None) -> None:
    location = parse_location(text)
    assert credentials_in(location) == credentials
    assert SECRET not in location.shown
    assert location.shown == "https://h/r"
    assert SECRET not in repr(location)


@pytest.mark.parametrize(
    "text",
    [
        f"https://u:{SECRET}@ho st/r",
        f"ssh://u:{SECRET}@h/r",
        f"ftp://u:{SECRET}@h/r",
        f"https://h/r?t={SECRET}",
    ],
)
def test_a_refusal_does_not_repeat_secrets(text: str) -> None:
    with pytest.raises(InvalidTextError) as refused:
        parse_location(text)
    assert SECRET not in str(refused.value)


def test_credentials_go_to_scheme_host_and_port_only() -> None:
    assert parse_location("https://u:p@h:8443/a/b").origin == "https://h:8443"


@settings(max_examples=300)
@example("u:p@", ":", ":r")
@given(
    st.sampled_from(["", "https://", "ssh://", "file://", "git@", "a::", "u:p@"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(["", "/r", ":r", "@h/r", "#", "?q"]),
)
def test_any_text_is_a_location_or_refused(head: str, middle: str, tail: str) -> None:
    try:
        location = parse_location(head + middle + tail)
    except InvalidTextError:
        return
    assert location.path is not None or not location.url.startswith("-")
    # What Git would take for `helper::address`; a later `::` is part of a path on a host.
    assert location.path is not None or not re.match(r"[^/:\[]*::", location.url)


@pytest.mark.parametrize(
    ("username", "password"), [("a\nhost=evil", "p"), ("a", "p\r"), ("a\0", ""), ("", "p")]
)
def test_credentials_that_cannot_be_meant_stall(username: str, password: str) -> None:
    with pytest.raises(Stalled) as setback:
        Credentials(username, password)
    assert setback.value.reason == "InvalidCredentials"


def test_no_secret_is_in_what_credentials_print() -> None:
    credentials = Credentials("me", SECRET, f"KEY {SECRET}", f"h {SECRET}")
    assert SECRET not in repr(credentials)
    assert SECRET not in credentials.identity


def test_identities_differ_wherever_credentials_do() -> None:
    asked = [
        Credentials(), Credentials("a"), Credentials("a", "b"), Credentials("a", "", "b"),
        Credentials("a", "", "", "b"),
    ]  # fmt: skip
    assert len({credentials.identity for credentials in asked}) == len(asked)
