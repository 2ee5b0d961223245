"""Keys of `status.artifact.metadata` that say where a revision came from. Pure."""

from typing import Final

AUTHOR: Final = "flagstaff.dev/author"
"""`Name <mail>`."""
COMMITTED_AT: Final = "flagstaff.dev/committed-at"
"""RFC 3339, in UTC."""
SUBJECT: Final = "flagstaff.dev/subject"
"""The first line of the commit's message."""
VERIFIED_BY: Final = "flagstaff.dev/verified-by"
"""The key of the metadata that names whose signature was verified: a name and a key's fingerprint."""
SIGNED_AT: Final = "flagstaff.dev/signed-at"
"""The key of the metadata for the time at which a bucket's manifest was signed: RFC 3339, in UTC, always of
the same length.
"""
LINK: Final = "flagstaff.dev/link"
"""The key of an alert's metadata for the URL of the commit's page."""
CHANGES: Final = "flagstaff.dev/changes"
"""The key of an alert's metadata for what a revision changes, one line for each flag."""
