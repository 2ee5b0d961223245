"""What tenants write into FlagAlerts: templates."""

from __future__ import annotations

import re
from typing import Final

from controller.api.parsing import InvalidTextError, check
from controller.events import alert_messages as messages
from tests.fuzz.target import Target, Wrong
from tests.worlds.events import message

_MESSAGE: Final = message("k", message="${reason} $$ $", metadata={"flagstaff.dev/author": "$name"})
_PLACE: Final = re.compile(r"[0-9]+:[0-9]+: .", re.DOTALL)


def check_place(error: Exception) -> None:
    """A complaint says where, in one line."""
    said = str(error)
    if not _PLACE.match(said) or not said.isprintable() or len(said) > 1_000:
        raise Wrong(f"a complaint that helps nobody: {said!r}")


def template(content: bytes) -> None:
    """A template is refused with a place or filled, bounded; what is filled in is not filled again."""
    text = content.decode(errors="replace")
    try:
        check(text)
    except InvalidTextError as error:
        check_place(error)
        return
    filled = messages.fill(text, _MESSAGE, "shop")
    if len(filled) > messages.MOST_FILLED:
        raise Wrong("longer than it may be")
    if "$" not in text and filled != text[: messages.MOST_FILLED]:
        raise Wrong("words changed")
    if (
        "$author" in text
        and "author" not in text.replace("$author", "")
        and "Ada" in filled
        and "Ada" not in text
    ):
        raise Wrong("what was filled in was filled again")


TARGETS: Final = {
    "template": Target(template, ("$name", "${message}", "$$", "${author}", "${changes}", "${", "}"))
}
