"""Questions to a Prometheus about who asks evaluators for flags. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from evaluator.host.times import query_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

KEY: Final = "feature_flag_key"
"""The label with the key of a flag."""
WHO: Final = ("namespace", "service", "pod", "job")
"""Labels that say who was asked, as far as a Prometheus has them."""
MOST_NAMED: Final = 3
"""Most of those who were asked for a flag that an answer names."""
_COUNTER: Final = "feature_flag_flagd_impression_total"
_STEPS: Final = 100
"""Into which a time is divided to look for the last request."""
_CHARACTERS: Final = 600
"""Of the keys in one query, which names them up to three times in a URL."""


class FlagRequests(NamedTuple):
    """The requests for one flag."""

    total: float
    by: Sequence[tuple[str, float]] = ()
    """Those who were asked most often, and how often."""
    last: datetime | None = None
    """When the last one was at the earliest; None: not known."""


def increase_query(window: str, by: Sequence[str], selector: str = "") -> str:
    """How often each flag was asked for in a time such as `30d`."""
    counter = f"{_COUNTER}{selector}"
    # A counter begins at its first request, of which `increase` knows nothing: one that began since counts
    # whole.
    begun = f"last_over_time({counter}[{window}]) unless {counter} offset {window}"
    return f"sum by ({', '.join(by)}) (({begun}) or increase({counter}[{window}]))"


def users_query(seconds: float, selector: str) -> str:
    """Who was asked most often for each flag."""
    counted = increase_query(query_duration(seconds), (KEY, *WHO), selector)
    return f"topk by ({KEY}) ({MOST_NAMED}, {counted} > 0)"


def seconds_of_steps(seconds: float) -> float:
    """Two of the steps in which the last request is looked for."""
    # A server may scrape once a minute.
    return 2 * max(300.0, seconds // _STEPS)


def last_request_query(seconds: float, selector: str) -> str:
    """The end of the two steps in which each flag was asked for last, as Unix time."""
    both = seconds_of_steps(seconds)
    step = query_duration(both / 2)
    # Steps overlap: `increase` knows nothing of what is between the last value of one and the first of the
    # next.
    grows = f"increase({_COUNTER}{selector}[{query_duration(both)}]) > 0"
    return f"max by ({KEY}) (max_over_time(timestamp({grows})[{query_duration(seconds)}:{step}]))"


def selector_of(keys: Iterable[str], labels: Mapping[str, str]) -> str:
    """The series of some flags that have the labels."""
    given = [f"{name}={_text(value)}" for name, value in sorted(labels.items())]
    return "{" + ",".join((*given, f"{KEY}=~{_text('|'.join(map(re.escape, keys)))}")) + "}"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    """The keys in parts that one query has room for."""
    part: list[str] = []
    size = 0
    for key in keys:
        length = len(re.escape(key).encode())
        if part and size + length > _CHARACTERS:
            yield part
            part, size = [], 0
        part.append(key)
        size += length
    if part:
        yield part


def who_was_asked(labels: Mapping[str, str]) -> str:
    """Namespace and name, as far as the labels have them."""
    name = labels.get("pod") or labels.get("service") or labels.get("job") or ""
    return "/".join(filter(None, (labels.get("namespace", ""), name)))
