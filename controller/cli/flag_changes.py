"""What differs between two flag sets, as words, JSON and Markdown. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from controller.authoring.plan_words import block
from controller.cli.printing import printable, short
from controller.delivery.changed_flags import BothRules, changed_flags
from evaluator.flags.diff import ChangedPart, diff
from evaluator.flags.model import ABSENT, CONFIDENTIAL_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.flagsets.compose import Composition
    from evaluator.flags.model import FlagSet

_MOST_LINES: Final = 100_000
_WIDEST: Final = 1_000_000
_MOST_MARKDOWN: Final = 200
"""Lines of a comment."""
_MOST_CHARACTERS: Final = 50_000
"""Characters of these lines: code hosts take 65,536 in all."""
_MOST_KEYS: Final = 20
_SIGNS: Final = {"+": "32", "-": "31", "~": "33"}
"""How terminals name green, red and yellow."""


@dataclass(frozen=True, slots=True)
class RuleChange:
    """The rule of a flag on both sides; null where there is none."""

    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class FlagChanges:
    """What differs."""

    __pydantic_config__ = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    before: str
    """The name of the first side: a revision, `working tree`, or FlagSet/NAME."""
    after: str
    """The name of the second side."""
    added: tuple[str, ...]
    """Keys of flags that only the second side has."""
    changed: dict[str, tuple[str, ...]]
    """Which parts differ, such as targeting, by the keys of flags that both sides have."""
    removed: tuple[str, ...]
    """Keys of flags that only the first side has."""
    lines: tuple[str, ...]
    """A line for each flag, such as `~ banner: default off (false) → on (true)`."""
    rules: dict[str, RuleChange] = field(default_factory=dict)
    """Both rules of each flag whose targeting differs, by the flags' keys: with what they refer to where that
    alone differs. Flags with values of Secrets are left out.
    """
    problems: tuple[str, ...] = ()
    """What is wrong with the definitions of the second side. A flag with an error stays as it was."""
    in_steps: dict[str, str] = field(default_factory=dict)
    """Of a comparison with a cluster: the FlagRollouts that roll changes out in steps, by the flags' keys."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    @property
    def summary(self) -> str:
        """`3 flags differ: 1 added, 2 changed`."""
        counts = {"added": len(self.added), "changed": len(self.changed), "removed": len(self.removed)}
        total = sum(counts.values())
        if not total:
            return "no flag differs"
        parts = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return f"{total} flag{'' if total == 1 else 's'} {'differs' if total == 1 else 'differ'}: {parts}"


def compare(names: tuple[str, str], before: FlagSet, after: Composition) -> FlagChanges:
    """The changes from `before` to what `after` would serve in its place."""
    changes = diff(before, after.flag_set)
    rules = BothRules(before, after.flag_set)
    shown = {
        key: RuleChange(*(None if rule is ABSENT else rule for rule in rules.of(key)))
        for key, parts in changes.changed.items()
        if ChangedPart.TARGETING in parts
        and all(CONFIDENTIAL_KEY not in side.flags[key].metadata for side in (before, after.flag_set))
    }
    return FlagChanges(
        *names,
        added=changes.added,
        changed={key: tuple(part.value for part in parts) for key, parts in changes.changed.items()},
        removed=changes.removed,
        lines=changed_flags(before, after.flag_set, changes, _MOST_LINES, _WIDEST),
        rules=shown,
        problems=tuple(str(problem) for problem in after.problems),
    )


def as_text(changes: FlagChanges) -> Iterator[tuple[str, str]]:
    """Yield (colour, line)."""
    yield "", f"{short(changes.before)} → {short(changes.after)}: {changes.summary}"
    for line in changes.lines:
        yield _SIGNS.get(line[:1], ""), printable(line)
    yield from (("", printable(line)) for line in _rollout_lines(changes))


def _rollout_lines(changes: FlagChanges) -> Iterator[str]:
    for name in sorted(set(changes.in_steps.values())):
        keys = [key for key, rollout in changes.in_steps.items() if rollout == name]
        more = f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
        yield f"rolled out in steps by FlagRollout {name}: {', '.join(keys[:_MOST_KEYS])}{more}"


def as_markdown(changes: FlagChanges) -> str:
    """The same for a comment on a pull request; nothing of a definition is taken for markup."""
    sizes = accumulate(map(len, changes.lines))
    count = min(_MOST_MARKDOWN, sum(size <= _MOST_CHARACTERS for size in sizes))
    lines = changes.lines[:count]
    if count < len(changes.lines):
        lines = (*lines, f"… and {len(changes.lines) - count} more")
    # GitHub and GitLab colour lines that begin with + and -.
    shown = [line.replace("~ ", "! ", 1) if line.startswith("~ ") else line for line in lines]
    parts = [f"**Flags**: {changes.summary} (`{short(changes.before)}` → `{short(changes.after)}`)"]
    if shown:
        parts.append(block("diff", shown))
    if rolled_out := [*_rollout_lines(changes)]:
        parts.append(block("text", rolled_out))
    if changes.problems:
        parts += ["Problems:", block("text", changes.problems)]
    return "\n\n".join(parts) + "\n"
