"""Keys of `status.artifact.metadata` that say where a revision came from. Pure."""

from typing import Final

AUTHOR: Final = "flagstaff.dev/author"
"""`Name <mail>`."""
COMMITTED_AT: Final = "flagstaff.dev/committed-at"
"""RFC 3339, in UTC."""
SUBJECT: Final = "flagstaff.dev/subject"
"""The first line of the commit's message."""
VERIFIED_BY: Final = "flagstaff.dev/verified-by"
"""Whose signature was verified: a name and a key's fingerprint."""
SIGNED_AT: Final = "flagstaff.dev/signed-at"
"""When a bucket's manifest was signed: RFC 3339, in UTC, always of the same length."""
LINK: Final = "flagstaff.dev/link"
"""In an alert: the page of the commit."""
CHANGES: Final = "flagstaff.dev/changes"
"""In an alert: what a revision changes, a line a flag."""
