"""Counts distinct users by arm, exactly, in a sample of bounded size. Pure.

Adaptive sampling (Flajolet, On adaptive sampling, 1990, https://doi.org/10.1007/BF02241657): a user is in the
sample if the hash of its targeting key is below a limit, which is halved while the sample is too large. All
arms have the same limit, so the numbers of their users can be compared.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

HASHES: Final = 2**64
"""The number of hashes: 0 to HASHES - 1."""


class UnitSample:
    """Hashes of users, each with the arm that it was last counted for."""

    def __init__(self, most: int) -> None:
        """most: the most users in the sample, at least 1."""
        self._most = most
        self._limit = HASHES
        self._arms: dict[int, str] = {}

    @property
    def share(self) -> float:
        """The part of all users that is in the sample: 1, a half, a quarter, …"""
        return self._limit / HASHES

    def add(self, user_hash: int, arm: str) -> None:
        """Count a user, by a hash that is uniform in 0 to HASHES - 1."""
        if user_hash < self._limit:
            self._arms[user_hash] = arm
            self._shrink()

    def resize(self, most: int) -> None:
        """Change the size of the sample; it never grows back."""
        self._most = most
        self._shrink()

    def counts(self) -> Mapping[str, int]:
        """Return the number of users in the sample by arm. May be called in a thread."""
        return Counter(list(self._arms.values()))

    def _shrink(self) -> None:
        while len(self._arms) > self._most:
            self._limit //= 2
            self._arms = {user_hash: arm for user_hash, arm in self._arms.items() if user_hash < self._limit}
