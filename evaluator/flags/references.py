"""Checks references between `$evaluators` and expands `$ref`s in rules, at a bounded cost. Pure.

flagd replaces the text `{"$ref":"name"}` in one pass; this expands the structure, nested references included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from evaluator.flags.known_operators import DEPTH, MEMBERSHIP, NODES, REFERENCE, is_scalars, reference_name
from evaluator.flags.problems import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from evaluator.flags.model import Json, Path

_VAST: Final = 2**62
"""Upper limit of computed sizes: references that double each other would need numbers of any length."""

_CONTAINERS: Final = (dict, list)
_CONSTANT_LIST: Final = (MEMBERSHIP, 1)
"""The end of the path of what `in` looks in."""


class RuleTooLarge(ValueError):
    """A rule with its `$ref`s expanded is beyond the bounds."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The measured size of a rule."""

    nodes: int
    depth: int
    references: tuple[tuple[str, Path, int], ...] = ()
    """Name, place and level of each `$ref` in it, in document order."""
    deepest: Path = ()
    """A place at level `depth`."""
    members: int = 0
    """Items of constant lists in which `in` looks for something, which are not among the nodes."""


def measure(rule: Json) -> Extent:
    """Measure a rule without expanding it; stops at the first excess, so the cost is bounded by NODES."""
    counted, level, members = 1, 0, 0
    deepest: Path = ()
    references: list[tuple[str, Path, int]] = []
    pending: list[tuple[Json, Path, int, bool]] = []
    if isinstance(rule, _CONTAINERS):
        pending.append((rule, (), 0, False))
    while pending:
        value, path, above, arguments = pending.pop()
        listed = isinstance(value, list)
        here = above if arguments and listed else above + 1
        if here > level:
            level, deepest = here, path
        if listed and path[-2:] == _CONSTANT_LIST and is_scalars(value):
            members += len(value)
            continue
        counted += len(value)
        if level > DEPTH or counted > NODES:
            break
        if listed:
            parts: Iterable[tuple[str | int, Json]] = enumerate(value)
        else:
            parts = value.items()
            if (name := reference_name(value)) is not None:
                references.append((name, path, here))
        children = [
            (part, (*path, step), here, not listed) for step, part in parts if isinstance(part, _CONTAINERS)
        ]
        pending.extend(reversed(children))
    return Extent(counted, level, tuple(references), deepest, members)


def excess(extent: Extent) -> list[Finding]:
    """Return an error for a rule that is too deep or too large, at its place; else nothing."""
    if extent.depth > DEPTH:
        message = f"the rule is nested more than {DEPTH} levels deep; flatten it"
        return [Finding(extent.deepest, Severity.ERROR, "rule-too-deep", message)]
    if extent.nodes > NODES:
        message = f"the rule has more than {NODES} parts, its $refs expanded; split it among flags"
        return [Finding((), Severity.ERROR, "rule-too-large", message)]
    return []


class Expander:
    """Expands rules with one set of evaluators. Each is expanded once and shared by all references to it, so
    that references that double each other cost no memory. Unknown and cyclic references stay as they are.
    """

    __slots__ = ("_bodies", "_extents")

    def __init__(self, evaluators: Mapping[str, Json]) -> None:
        self._extents: dict[str, Extent] = {}
        self._bodies: dict[str, Json] = {}
        edges = _edges(_links(evaluators))
        for members in components(edges):
            name = members[0]
            if is_cycle(members, edges):
                continue
            self._extents[name] = extent = self.extent(evaluators[name])
            if not excess(extent):
                body = evaluators[name]
                self._bodies[name] = self._substitute(body) if extent.references else body

    def extent(self, rule: Json) -> Extent:
        """Return the size of the expanded rule without expanding it. Its references are the rule's own."""
        own = measure(rule)
        total, level, deepest, members = own.nodes, own.depth, own.deepest, own.members
        for name, path, above in own.references:
            body = self._extents.get(name)
            if body is None:
                continue
            total, members = min(total + body.nodes - 2, _VAST), min(members + body.members, _VAST)
            if above - 1 + body.depth > level:
                level, deepest = above - 1 + body.depth, path
        return Extent(total, level, own.references, deepest, members)

    def check(self, rule: Json) -> list[Finding]:
        """Return one error if the expanded rule is beyond the bounds."""
        return excess(self.extent(rule))

    def expand(self, rule: Json) -> Json:
        """Return the rule with its references expanded; change no part of it. Raises RuleTooLarge."""
        extent = self.extent(rule)
        for problem in excess(extent):
            raise RuleTooLarge(problem.message)
        return self._substitute(rule) if extent.references else rule

    def _substitute(self, value: Json) -> Json:
        if isinstance(value, list):
            return [self._substitute(item) for item in value]
        if not isinstance(value, dict):
            return value
        name = reference_name(value)
        if name is not None:
            return self._bodies.get(name, value)
        return {key: self._substitute(item) for key, item in value.items()}


def check_cycles(evaluators: Mapping[str, Json]) -> list[tuple[str, Finding]]:
    """Return the problems of references between evaluators, all warnings, each with the evaluator's name."""
    links = _links(evaluators)
    edges = _edges(links)
    cycle_of = {
        name: members[0] for members in components(edges) if is_cycle(members, edges) for name in members
    }
    return [
        (
            name,
            _link_problem(target, path, is_cycle=name in cycle_of and cycle_of[name] == cycle_of.get(target)),
        )
        for name, targets in links.items()
        for target, path in targets
    ]


def _link_problem(target: str, path: Path, *, is_cycle: bool) -> Finding:
    if is_cycle:
        message = f'"{target}" refers back to this rule, so neither can be expanded; break the cycle'
        return Finding((*path, REFERENCE), Severity.WARNING, "reference-cycle", message)
    message = f'not every flagd expands "{target}" inside another evaluator; write its rule here'
    return Finding((*path, REFERENCE), Severity.WARNING, "nested-reference", message)


def _links(evaluators: Mapping[str, Json]) -> dict[str, list[tuple[str, Path]]]:
    """Target and place of each reference between evaluators, by the name of the one that refers."""
    return {
        name: [(target, path) for target, path, _ in measure(body).references if target in evaluators]
        for name, body in evaluators.items()
    }


def _edges(links: Mapping[str, Iterable[tuple[str, Path]]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(dict.fromkeys(target for target, _ in targets)) for name, targets in links.items()}


def is_cycle(members: tuple[str, ...], edges: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether the members of one component refer to each other, or the only one to itself."""
    return len(members) > 1 or members[0] in edges[members[0]]


def components(edges: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield strongly connected components, those referred to before those that refer, by Tarjan's algorithm,
    iteratively: a chain of references may be longer than Python's stack.
    """
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    trail: dict[str, None] = {}
    for root in edges:
        work = [] if root in order else [(root, iter(edges[root]))]
        while work:
            name, rest = work[-1]
            if name not in order:
                order[name] = lowest[name] = len(order)
                trail[name] = None
            for target in rest:
                if target not in order:
                    work.append((target, iter(edges[target])))
                    break
                if target in trail:
                    lowest[name] = min(lowest[name], order[target])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[name])
                if lowest[name] == order[name]:
                    yield _pop_cycle(trail, name)


def _pop_cycle(trail: dict[str, None], name: str) -> tuple[str, ...]:
    members: list[str] = []
    while not members or members[-1] != name:
        members.append(trail.popitem()[0])
    return tuple(sorted(members))
