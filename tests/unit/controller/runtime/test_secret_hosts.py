from __future__ import annotations

import time

import pytest

from controller.runtime.secret_texts import Binding, SecretContent, binding_of, hosts_of
from controller.runtime.setbacks import Stalled


@pytest.mark.parametrize(
    ("annotation", "host", "lets"),
    [
        (None, "anywhere.example.net", True),
        ("git.example.com", "git.example.com", True),
        ("git.example.com", "GIT.example.com.", True),
        (" a.example.com , *.b.example.com", "x.b.example.com", True),
        ("*.b.example.com", "b.example.com", False),
        ("git.example.com", "git.example.com.evil.net", False),
        ("git.example.com", "", False),
        ("::1", "[::1]", True),
        ("", "git.example.com", False),
    ],
)
def test_a_secret_is_used_for_just_the_hosts_of_its_annotation(
    annotation: str | None, host: str, *, lets: bool
) -> None:
    bound = binding_of(SecretContent({}, Binding("shop", "git", hosts_of(annotation))))
    if lets:
        bound.require(host)
    else:
        with pytest.raises(
            Stalled, match=r"Secret shop/git may not be used for host .*/allowed-hosts does not"
        ):
            bound.require(host)


@pytest.mark.parametrize(
    "annotation",
    [",".join(f"*{number}*" for number in range(30_000)), "*a" * 100_000, "a.com," * 65],
    ids=["many", "long", "some"],
)
def test_an_annotation_that_is_too_long_to_match_is_refused(annotation: str) -> None:
    began = time.perf_counter()
    with pytest.raises(Stalled, match="may have 64 hosts at most, of 253 characters"):
        Binding("shop", "git", hosts_of(annotation)).require("a" * 250)
    assert time.perf_counter() - began < 0.25


def test_an_installation_may_ask_for_the_annotation() -> None:
    with pytest.raises(Stalled, match=r"flagstaff\.dev/allowed-hosts is missing") as caught:
        Binding("shop", "git").require_annotation().require("git.example.com")
    assert caught.value.reason == "SecretHostDenied"
    Binding("shop", "git", ("git.example.com",)).require_annotation().require("git.example.com")


def test_what_comes_from_no_cluster_is_bound_to_nothing() -> None:
    binding_of({"password": b"x"}).require("git.example.com")


def test_a_secret_that_is_for_hosts_becomes_no_part_of_definitions() -> None:
    with pytest.raises(
        Stalled, match=r"Secret shop/git may not be used for definitions: .* binds it to hosts"
    ):
        Binding("shop", "git", ("git.example.com",)).require_free("definitions")
    Binding("shop", "git").require_free("definitions")
