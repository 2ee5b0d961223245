from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from evaluator.host import logs

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("evaluator.test")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    yield
    root.handlers[:], root.level = handlers, level


def lines(form: str, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(form, level, stream)
    return stream


def only(stream: io.StringIO) -> Any:
    return json.loads(stream.getvalue())


def test_an_event_is_one_json_object_with_its_fields() -> None:
    stream = lines("json")
    log.warning("%s is down", "flags.json", extra={"reason": "NotFound", "flags": 3})
    event = only(stream)
    assert event.pop("time").endswith("Z")
    assert event == {
        "level": "warning", "logger": "evaluator.test", "message": "flags.json is down", "reason": "NotFound",
        "flags": 3,
    }  # fmt: skip


def test_on_a_console_an_event_is_one_line_whatever_it_holds() -> None:
    stream = lines("console")
    log.info("a\nb\x1b[31m", extra={"source": "two words", "revision": None, "flags": 3})
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(r'Z INFO a\nb\u001b[31m source="two words" revision=null flags=3')


@pytest.mark.parametrize("form", ["console", "json"])
def test_an_exception_comes_with_its_trace(form: str) -> None:
    stream = lines(form)
    try:
        int("because")
    except ValueError:
        log.exception("failed")
    assert "ValueError: invalid literal" in stream.getvalue()


@pytest.mark.parametrize(("level", "count"), [("debug", 3), ("info", 2), ("warning", 1)])
def test_nothing_below_the_level_is_logged(level: str, count: int) -> None:
    stream = lines("json", level)
    log.debug("debug")
    log.info("info")
    log.warning("warning")
    assert len(stream.getvalue().splitlines()) == count


def test_a_field_is_cut_before_it_fills_the_disk() -> None:
    stream = lines("json")
    log.info("x" * 1_000_000, extra={"why": "y" * 1_000_000})
    assert len(stream.getvalue()) < 20_000


def test_a_value_without_a_json_form_is_logged_as_text() -> None:
    stream = lines("json")
    log.info("a", extra={"path": {1, 2}.__class__})
    assert only(stream)["path"] == "<class 'set'>"


def test_the_log_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("console", "info")
    log.info("hello")
    output = capsys.readouterr()
    assert (output.out, "hello" in output.err) == ("", True)
