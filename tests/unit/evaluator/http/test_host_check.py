from __future__ import annotations

import pytest

from evaluator.http.messages import Request, Response
from evaluator.http.routes import Routes, without_pages

ANSWER = Response(200, b"flags", ())


def status(**headers: str) -> int:
    routes = without_pages(Routes(http={("GET", "/flags"): lambda _: ANSWER}))
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    answer = routes.http["GET", "/flags"](Request("GET", "/flags", "", named, b"", "127.0.0.1:1"))
    assert isinstance(answer, Response)
    return answer.status


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8014", "10.0.0.7", "[::1]:8014", "[::ffff:10.0.0.7]:8014", "localhost:8014", "LOCALHOST.",
        "evaluator", "flags.shop.svc", "10-0-0-7.shop.pod.cluster.local:8014", "laptop.local",
        "host.docker.internal:8014", "",
    ],
)  # fmt: skip
def test_a_caller_that_names_an_address_or_a_private_name_is_answered(host: str) -> None:
    assert status(host=host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8014", "evil.example", "evil.example.", "localhost.evil.example", "127.0.0.1.nip.io",
        "svc.evil.example:8014", "EVIL.EXAMPLE", "x.internal.evil.example",
    ],
)  # fmt: skip
def test_a_page_whose_own_name_leads_here_is_refused(host: str) -> None:
    assert status(host=host) == 403


@pytest.mark.parametrize(
    ("site", "expected"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
)
def test_a_page_of_another_site_is_refused(site: str, expected: int) -> None:
    assert status(host="127.0.0.1:8014", sec_fetch_site=site) == expected


def test_a_caller_without_headers_is_answered() -> None:
    assert status() == 200
