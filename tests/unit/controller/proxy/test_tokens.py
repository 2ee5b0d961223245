"""What a token says of itself, which anybody may write, and which users are one reader."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.proxy.users import User, seconds_left
from controller.sources.oci_registry import token_seconds

NOW = 1_700_000_000.0
DAY = 86_400.0
numbers = st.one_of(st.integers(-(10**400), 10**400), st.floats(), st.integers(0, 2**54), st.booleans())


def token(claims: object) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.x"


@given(numbers | st.none() | st.text() | st.lists(numbers))
def test_no_expiry_of_a_token_is_beyond_what_is_counted_with(expires: object) -> None:
    assert 0.0 <= seconds_left(token({"exp": expires}), NOW, unlimited=DAY) <= 2**53


@pytest.mark.parametrize(
    ("expires", "left"),
    [
        (NOW + 60, 60.0),
        (int(NOW) - 60, 0.0),
        (10**400, DAY),
        (-(10**400), DAY),
        (float("nan"), DAY),
        ("1", DAY),
    ],
)
def test_a_token_is_used_until_it_expires_if_it_says_when(expires: object, left: float) -> None:
    assert seconds_left(token({"exp": expires}), NOW, unlimited=DAY) == left


@given(numbers | st.none() | st.text())
def test_no_token_of_a_registry_lives_for_more_than_a_day(seconds: object) -> None:
    assert 0.0 < token_seconds({"expires_in": seconds}) <= DAY


JANE = User("jane", "7", ("dev",), (("scopes.example.com", ("flags:read",)),))
POD = User(
    "system:serviceaccount:shop:web",
    "9",
    ("system:serviceaccounts",),
    (
        ("authentication.kubernetes.io/credential-id", ("JTI=1",)),
        ("authentication.kubernetes.io/pod-name", ("web-1",)),
        ("authentication.kubernetes.io/pod-uid", ("u-1",)),
    ),
)


@pytest.mark.parametrize(
    "other",
    [
        replace(JANE, name="joe"),
        replace(JANE, uid="8"),
        replace(JANE, groups=("dev", "ops")),
        replace(JANE, extra=()),
        replace(JANE, extra=(("scopes.example.com", ("flags:read", "flags:write")),)),
    ],
)
def test_users_that_differ_in_what_rights_may_depend_on_are_two_readers(other: User) -> None:
    assert other.reader != JANE.reader
    assert replace(JANE).reader == JANE.reader


def test_the_pods_of_one_service_account_are_one_reader() -> None:
    of_another_pod = tuple((key, (f"{values[0]}0",)) for key, values in POD.extra)
    assert replace(POD, extra=of_another_pod).reader == POD.reader
