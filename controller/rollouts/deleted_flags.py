"""Asks a FlagSet's Prometheus who asks evaluators for flags that a revision deletes."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from controller.authoring.request_queries import (
    KEY,
    FlagRequests,
    batches,
    increase_query,
    last_request_query,
    seconds_of_steps,
    selector_of,
    users_query,
    who_was_asked,
)
from controller.rollouts.metric_servers import AllowedServers, Question, read_answer
from controller.rollouts.metric_values import UnusableError, prometheus_vector
from evaluator.host.times import query_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.api.flagset import DeletionGuard


MOST_KEYS: Final = 200
"""Deleted flags of one revision that are asked about."""
_SECONDS: Final = 30.0
"""For all questions about one revision."""
_NAME: Final = re.compile(r"[\w.:/-]{1,253}")
"""What a namespace, a pod or a job may be called: no other text of an answer is repeated."""


@dataclass(frozen=True, slots=True)
class DeletedFlags:
    """See the port RequestReader of FlagSets."""

    servers: AllowedServers

    async def ask(
        self, namespace: str, guard: DeletionGuard, keys: Sequence[str], now: datetime
    ) -> Mapping[str, FlagRequests] | str:
        """See RequestReader."""
        if len(keys) > MOST_KEYS:
            return (
                f"{len(keys)} flags are deleted at once, of {MOST_KEYS} that are asked about; "
                "delete fewer in a commit"
            )
        found: dict[str, FlagRequests] = {}
        try:
            async with asyncio.timeout(_SECONDS):
                for batch in batches(keys):
                    found |= await _Asked(self.servers, namespace, guard, now).requests(batch)
        except UnusableError as error:
            return str(error)
        except TimeoutError:
            return f"no answer within {_SECONDS:g} s"
        return found


@dataclass(frozen=True, slots=True)
class _Asked:
    servers: AllowedServers
    namespace: str
    guard: DeletionGuard
    now: datetime

    async def requests(self, keys: Sequence[str]) -> dict[str, FlagRequests]:
        """The requests for each flag that has any. Raises UnusableError."""
        seconds, labels = self.guard.requested_within, self.guard.labels
        counted = await self._vector(
            increase_query(query_duration(seconds), (KEY,), selector_of(keys, labels))
        )
        counts = {of[KEY]: count for of, count in counted if count > 0 and of.get(KEY) in keys}
        if not counts:
            return {}
        selector = selector_of(counts, labels)
        by: dict[str, list[tuple[str, float]]] = {key: [] for key in counts}
        for of, count in await self._vector(users_query(seconds, selector)):
            named = {name: text for name, text in of.items() if _NAME.fullmatch(text)}
            if of.get(KEY) in by and (who := who_was_asked(named)):
                by[of[KEY]].append((who, count))
        lasts = {of.get(KEY): at for of, at in await self._vector(last_request_query(seconds, selector))}
        return {
            key: FlagRequests(count, sorted(by[key], key=lambda each: -each[1]), self._moment(lasts.get(key)))
            for key, count in counts.items()
        }

    def _moment(self, end: float | None) -> datetime | None:
        """When the steps of the last request began; None for what is no time of late."""
        within = self.guard.requested_within
        if end is None or not 0 <= self.now.timestamp() - end + _SECONDS <= within + 2 * _SECONDS:
            return None
        return datetime.fromtimestamp(int(end - seconds_of_steps(within)), UTC)

    async def _vector(self, query: str) -> list[tuple[Mapping[str, str], float]]:
        provider, seconds = self.guard.provider, self.guard.requested_within
        question = Question(provider, query, seconds, "spec.deletionGuard.provider")
        return prometheus_vector(
            await read_answer(self.servers, self.namespace, question, (self.now, self.now))
        )
