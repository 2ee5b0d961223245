"""Which users are one reader: the cached rights of one are those of the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.proxy.users import User

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
