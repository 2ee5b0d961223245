"""Artifacts in a container registry, as a source."""

from typing import Final

SCHEME: Final = "oci://"
"""How the address of one begins; here, since the rest takes long to load."""
