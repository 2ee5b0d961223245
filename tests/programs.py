"""Programs that tests start."""

from typing import Final

DIES_WITH_US: Final = ("setpriv", "--pdeathsig", "KILL", "--")
"""In front of a command: what we start ends with us, even when we are killed."""
