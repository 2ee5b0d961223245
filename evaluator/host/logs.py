"""The log: one line an event on standard error, for people or as JSON.

By the standard library's logging, whose `extra` carries fields: structlog would cost each sidecar memory. A
line never holds a credential, or a value of an evaluation context, which is a user's personal data.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TextIO

from evaluator.host.texts import cut
from evaluator.host.times import precise_timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST: Final = 8192
"""Most characters of a field: text of a peer or a source must not fill the disk."""
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(form: str, level: str, stream: TextIO | None = None) -> None:
    """Send everything from `level` upwards to `stream` (standard error), as `console` or `json`."""
    log = logging.StreamHandler(sys.stderr if stream is None else stream)
    log.setFormatter(JsonLines() if form == "json" else ConsoleLines())
    root = logging.getLogger()
    root.addHandler(log)
    root.setLevel(level.upper())
    # asyncio's debug lines are about callbacks, not flags.
    logging.getLogger("asyncio").setLevel(logging.WARNING)


class JsonLines(logging.Formatter):
    """`{"time", "level", "logger", "message"}` and the event's own fields; `exception` is a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a JSON object without a line break."""
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": cut(record.getMessage(), _LONGEST),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = cut(self.formatException(record.exc_info), _LONGEST)
        return json.dumps(line, ensure_ascii=False, default=str)


class ConsoleLines(logging.Formatter):
    """`TIME LEVEL message field=value …`; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, whatever the values contain."""
        words = [_time(record), record.levelname, _on_one_line(cut(record.getMessage(), _LONGEST))]
        words += (f"{name}={_word(value)}" for name, value in _fields(record).items())
        line = " ".join(words)
        if record.exc_info:
            line += "\n" + cut(self.formatException(record.exc_info), _LONGEST)
        return line


def _time(record: logging.LogRecord) -> str:
    return precise_timestamp(datetime.fromtimestamp(record.created, UTC))


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    return {
        name: cut(value, _LONGEST) if isinstance(value, str) else value
        for name, value in vars(record).items()
        if name not in _STANDARD
    }


def _word(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if text and text.isprintable() and " " not in text else json.dumps(text)


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1]
