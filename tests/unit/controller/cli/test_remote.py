from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from controller.cli import main
from controller.cli.printing import printable
from controller.cli.remote import MOST_BYTES, remote

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAG = {
    "key": "banner", "state": "ENABLED", "type": "string", "defaultVariant": "plain",
    "targeting": True, "source": "repo", "flagSetId": None, "revision": "main@sha1:1",
}  # fmt: skip
SERVED: dict[str, Any] = {
    "revision": "main@sha1:1", "digest": "sha256:1", "ageSeconds": 1.36,
    "sources": [
        {"name": "repo", "digest": "sha256:1", "flags": 1, "ageSeconds": 61.0, "fromDisk": True,
         "stale": {"reason": "cannot be \x1b[31mreached", "since": 1.0}},
        {"name": "late", "digest": None, "flags": 0},
    ],
    "count": 1, "flags": [FLAG], "next": None,
}  # fmt: skip
ANSWER = {"key": "banner", "value": "x", "steps": [{"text": "flag: STATIC"}]}


class Evaluator(BaseHTTPRequestHandler):
    """Answers in order, and remembers what it was asked."""

    answers: ClassVar[list[tuple[int, bytes]]] = []
    asked: ClassVar[list[tuple[str, bytes]]] = []

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.asked.append((self.path, body))
        status, answer = self.answers.pop(0)
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    Evaluator.answers, Evaluator.asked = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Evaluator)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def says(*documents: Any, status: int = 200) -> None:
    Evaluator.answers.extend((status, json.dumps(each).encode()) for each in documents)


def test_flags_are_a_table_below_what_is_known_of_everything(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    says(SERVED)
    assert main(["flags", "--to", address]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:3] == ["revision  main@sha1:1", "digest    sha256:1", "age       1.4 s"]
    assert (
        printed[3]
        == r"source    repo: 1 flag, last confirmed 61.0 s ago, from disk, stale: cannot be \u001b[31mreached"
    )
    assert printed[4] == "source    late: nothing received yet"
    assert printed[-1].split() == ["banner", "ENABLED", "string", "plain", "yes", "repo", "-", "main@sha1:1"]


def test_flags_as_json_are_all_pages_in_one(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    says({**SERVED, "next": "a b"}, {**SERVED, "flags": [{**FLAG, "key": "c"}]})
    assert main(["flags", "--to", f"http://{address}", "--output", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [flag["key"] for flag in printed["flags"]] == ["banner", "c"]
    assert "next" not in printed
    assert [path for path, _ in Evaluator.asked] == ["/flags", "/flags?after=a%20b"]


def test_a_swap_between_two_pages_starts_over(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    says({**SERVED, "next": "banner"}, {**SERVED, "digest": "sha256:2"}, SERVED)
    assert main(["flags", "--to", address]) == 0
    assert capsys.readouterr().out.count("banner") == 1


def test_one_that_swaps_all_the_time_is_given_up(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    says(*[{**SERVED, "next": "banner"}, {**SERVED, "digest": "sha256:2"}] * 3)
    assert main(["flags", "--to", address]) == 3
    assert "the flags changed while" in capsys.readouterr().err


def test_an_evaluator_that_serves_nothing_yet_exits_3(address: str) -> None:
    says({**SERVED, "digest": None, "revision": None, "flags": [], "count": 0})
    assert main(["flags", "--to", address]) == 3


def test_explain_asks_with_context_and_type_and_prints_as_eval_does(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    says(ANSWER)
    words = ["explain", "banner", "--to", address, "--context", "user.age=7", "--type", "string"]
    assert main(words) == 0
    assert json.loads(Evaluator.asked[0][1]) == {
        "flagKey": "banner", "context": {"user": {"age": 7}}, "type": "string",
    }  # fmt: skip
    printed = capsys.readouterr().out
    assert printed == '{\n  "key": "banner",\n  "value": "x"\n}\n  flag: STATIC\n'


def test_explain_asks_for_a_version_that_was_served_before(address: str) -> None:
    says(ANSWER)
    assert main(["explain", "banner", "--to", address, "--at", "2026-01-02T03:04:05Z"]) == 0
    assert json.loads(Evaluator.asked[0][1])["at"] == "2026-01-02T03:04:05Z"


def test_explain_of_an_error_exits_1(address: str) -> None:
    says({**ANSWER, "errorCode": "GENERAL"})
    assert main(["explain", "banner", "--to", address]) == 1


def test_explain_of_an_unknown_flag_suggests_the_key_that_is_spelled_alike(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    says({**ANSWER, "errorCode": "FLAG_NOT_FOUND"})
    says({"digest": "d", "flags": [{"key": "new-banner"}, {"key": "max-items"}]})
    assert main(["explain", "new-baner", "--to", address]) == 1
    assert "there is no flag 'new-baner'; did you mean 'new-banner'?" in capsys.readouterr().err


def test_explain_as_json_is_one_object_with_its_steps(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    says({**ANSWER, "steps": [{"text": "targeting: on"}]})
    assert main(["explain", "banner", "--to", address, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == ["targeting: on"]


@pytest.mark.parametrize(
    ("status", "body", "code", "said"),
    [
        (400, b'{"error":"context must be an object"}', 1, "context must be an object"),
        (412, b'{"error":"nothing is served"}', 3, "nothing is served"),
        (404, b"not found", 3, "--to takes an evaluator's management port"),
        (200, b"<html>", 3, "--to takes an evaluator's management port"),
        (200, b"[]", 3, "--to takes an evaluator's management port"),
    ],
    ids=["refused", "nothing served", "another server", "html", "list"],
)
def test_a_response_that_is_no_evaluation_is_reported(
    address: str, capsys: pytest.CaptureFixture[str], status: int, body: bytes, code: int, said: str
) -> None:
    Evaluator.answers.append((status, body))
    assert main(["explain", "banner", "--to", address]) == code
    assert said in capsys.readouterr().err


def test_an_answer_without_end_is_not_read(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    Evaluator.answers.append((200, b" " * (MOST_BYTES + 1)))
    assert main(["flags", "--to", address]) == 3
    assert f"more than {MOST_BYTES} bytes" in capsys.readouterr().err


def test_an_address_without_a_listener_exits_3(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flags", "--to", "127.0.0.1:1"]) == 3
    assert "cannot reach an evaluator at 127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", ["", "ftp://host", "host:port", "http://host:8014/metrics", "http://me:word@host"]
)
def test_an_address_that_is_none_exits_2(wrong: str) -> None:
    assert main(["flags", "--to", wrong]) == 2


def test_a_context_that_is_none_exits_2() -> None:
    assert main(["explain", "banner", "--context", "loose"]) == 2


def test_a_host_alone_is_asked_at_the_default_port() -> None:
    assert remote("evaluator").port == 8014
    assert remote("https://[::1]:1").host == "::1"
    assert remote("https://[::1]:1").secure


@pytest.mark.parametrize("character", ["\x1b", "\x7f", "\u202e", "\U000e0001"])
def test_what_steers_a_terminal_is_shown_as_an_escape_that_json_has_too(character: str) -> None:
    shown = printable(f'"{character}"\n')
    assert character not in shown
    assert json.loads(shown) == character


def test_a_mere_port_is_refused_with_the_address_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flags", "--to", "8014"]) == 2
    assert "write 127.0.0.1:8014" in capsys.readouterr().err


def test_flags_shows_twelve_digits_of_a_revision(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    revision = "main@sha1:46ead10f53b751a66b035e6b4c6ff198ee57e522"
    says({**SERVED, "revision": revision, "flags": [{**FLAG, "revision": revision}]})
    assert main(["flags", "--to", address]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "revision  main@sha1:46ead10f53b7"
    assert printed[-1].endswith(" main@sha1:46ead10f53b7")
