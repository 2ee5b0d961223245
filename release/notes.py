"""Reads what CHANGELOG.md says of one version."""

from __future__ import annotations

import re
from typing import Final

_HEADING: Final = re.compile(r"^## \[(?P<version>[^]]+)\] - (?P<date>.+)$", re.MULTILINE)
UNRELEASED: Final = "unreleased"


class MissingNotesError(Exception):
    """The changelog does not describe the version. The text says what to do."""


def read_notes(changelog: str, version: str, *, dated: bool) -> str:
    """Return the section of `version` without its heading. Raises MissingNotesError where there is none,
    where it is empty, and, if it must be `dated`, where its heading has no date.
    """
    headings = list(_HEADING.finditer(changelog))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if heading["version"] != version:
            continue
        if dated and heading["date"] == UNRELEASED:
            raise MissingNotesError(
                f"CHANGELOG.md: {version} is {UNRELEASED}; write the date of the release there"
            )
        notes = changelog[heading.end() : following.start() if following else None].strip()
        if not notes:
            raise MissingNotesError(
                f"CHANGELOG.md: the section of {version} is empty; write what changes for users"
            )
        return notes + "\n"
    raise MissingNotesError(f"CHANGELOG.md has no section of {version}; add '## [{version}] - DATE'")
