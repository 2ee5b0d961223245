"""Keys of `status.artifact.metadata` that say where a revision came from. Pure."""

from typing import Final

AUTHOR: Final = "flagstaff.dev/author"
"""`Name <mail>`."""
COMMITTED_AT: Final = "flagstaff.dev/committed-at"
"""RFC 3339, in UTC."""
SUBJECT: Final = "flagstaff.dev/subject"
"""The first line of the commit's message."""
VERIFIED_BY: Final = "flagstaff.dev/verified-by"
"""Metadata key for whose signature was verified: a name and a key's fingerprint."""
SIGNED_AT: Final = "flagstaff.dev/signed-at"
"""Metadata key for the time of a bucket's signature: RFC 3339, in UTC, always of the same length."""
LINK: Final = "flagstaff.dev/link"
"""Metadata key of an alert for the URL of the commit's page."""
CHANGES: Final = "flagstaff.dev/changes"
"""Metadata key of an alert for what a revision changes, one line for each flag."""
