"""What a delivery comes to: a flag set, with bad flags at their last good definition, or a refusal. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from evaluator.flags.blame import concerns_all, users
from evaluator.flags.canonical import digest
from evaluator.flags.holding import held_back
from evaluator.flags.layer import read_layer
from evaluator.flags.merge import merge
from evaluator.flags.model import DIGEST_KEY, LEFT_OUT_KEY
from evaluator.sync.source import BOUNDS

if TYPE_CHECKING:
    from evaluator.flags.model import FlagSet
    from evaluator.flags.problems import Problem
    from evaluator.sync.source import Delivery


@dataclass(frozen=True, slots=True)
class Accepted:
    """To be served."""

    flag_set: FlagSet
    digest: str
    """Of the flag set: `sha256:<hex>`."""
    held: tuple[str, ...]
    """Keys of the flags that stay at their last good definition, sorted."""
    problems: tuple[Problem, ...]
    """Errors and warnings, by place."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It is unknown what the source wants: nothing changes."""

    problems: tuple[Problem, ...]

    @property
    def cause(self) -> str:
        """The first error, with its place."""
        errors = (str(problem) for problem in self.problems if problem.severity == "error")
        return next(errors, "it holds no flags")


def accept(delivery: Delivery, previous: FlagSet | None) -> Accepted | Refused:
    """Judge a delivery after `previous`, the last that was accepted of this source. Takes long for a large one."""
    layer = read_layer(delivery.documents, bounds=BOUNDS)
    parsed = merge([layer], document=True, bounds=BOUNDS)
    if concerns_all(parsed):
        return Refused(parsed.problems)
    bad = parsed.bad | users(parsed.flag_set, parsed.errors)
    delivered, left_out = _left_out(parsed.flag_set)
    flag_set, held = held_back(delivered, bad | left_out, previous)
    if bad or held:
        # It says what the peer delivers, which is not what is served: nobody is to be told that it is.
        metadata = {key: value for key, value in flag_set.metadata.items() if key != DIGEST_KEY}
        flag_set = replace(flag_set, metadata=MappingProxyType(metadata))
    return Accepted(flag_set, digest(flag_set), held, parsed.problems)


def _left_out(flag_set: FlagSet) -> tuple[FlagSet, frozenset[str]]:
    """The set without the mark, and the flags that are not in it for want of a good definition at the sender."""
    text = flag_set.metadata.get(LEFT_OUT_KEY)
    if not isinstance(text, str):
        return flag_set, frozenset()
    metadata = {key: each for key, each in flag_set.metadata.items() if key != LEFT_OUT_KEY}
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        keys = None
    keys = keys if isinstance(keys, list) else []
    named = frozenset(each for each in keys if isinstance(each, str))
    return replace(flag_set, metadata=MappingProxyType(metadata)), named - flag_set.flags.keys()


def fingerprint(delivery: Delivery) -> bytes:
    """Equal for deliveries that say the same."""
    whole = hashlib.sha256(json.dumps(dict(delivery.context), sort_keys=True).encode())
    for name, content in delivery.documents:
        whole.update(f"\n{name}\n{len(content)}\n".encode(errors="surrogatepass"))
        whole.update(content)
    return whole.digest()
