"""Where an object is asked for."""

from __future__ import annotations

import pytest

from controller.kube.answers import path_of, paths_of_all, service_account_user
from controller.runtime.setbacks import Stalled


@pytest.mark.parametrize(
    "name", [".", "..", "a/b", "../../other/secrets/x", "a?b", "a%2fb", "A", "-a", "a\n", "a" * 254]
)
def test_what_is_no_name_leads_nowhere(name: str) -> None:
    with pytest.raises(Stalled, match="not a valid object name"):
        path_of("v1", "Secret", "shop", name)
    with pytest.raises(Stalled):
        path_of("v1", "Secret", name)


def test_all_of_a_kind_are_in_each_namespace_or_everywhere() -> None:
    assert paths_of_all("v1", "secrets", ()) == ["/api/v1/secrets"]
    assert len(paths_of_all("a.dev/v1", "things", ("a", "b"))) == 2


def test_a_service_account_is_a_user() -> None:
    assert service_account_user("shop", "flags") == "system:serviceaccount:shop:flags"


@pytest.mark.parametrize(
    ("namespace", "name"), [("shop", "a:b"), ("a:b", "c"), ("shop", ""), ("shop", "a\r\nX: y")]
)
def test_what_is_no_service_account_is_no_user(namespace: str, name: str) -> None:
    with pytest.raises(Stalled, match="no service account can have this name"):
        service_account_user(namespace, name)
