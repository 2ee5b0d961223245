"""The objects that a pod refers to by its annotations, and whether it may. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from controller.injection.options import Refused
from controller.injection.reading import source

if TYPE_CHECKING:
    from controller.injection.options import Known


class Named(NamedTuple):
    """What an annotation names."""

    namespace: str
    name: str
    kinds: tuple[str, ...]
    """Those that may be meant."""

    def shown_to(self, reader: str) -> str:
        """As pods of the namespace `reader` name it."""
        return self.name if self.namespace == reader else f"{self.namespace}/{self.name}"


class Referring:
    """What a pod refers to, and the warnings that come of it."""

    def __init__(self, namespace: str, known: Known) -> None:
        self.namespace = namespace
        self.known = known
        self.warnings: list[str] = []

    def named(self, given: str, annotation: str, kinds: tuple[str, ...]) -> Named:
        """The object that `given` names, `NAME` or `NAMESPACE/NAME`. Raises Refused."""
        place, slash, name = given.rpartition("/")
        where = f"annotation {annotation}"
        if not source.NAME.fullmatch(name) or (slash and not source.NAME.fullmatch(place)):
            kind = f"{'an' if kinds[0].startswith('I') else 'a'} {kinds[0]}"
            raise Refused(f"{where}: {given[:253]!r} is no object's name; write the name of {kind}")
        return Named(place or self.namespace, name, self.permitted(kinds, place, name, where))

    def listed(self, given: str, annotation: str, kinds: tuple[str, ...]) -> list[Named]:
        """The objects that `given` names, separated by commas. Raises Refused."""
        return [self.named(each.strip(), annotation, kinds) for each in given.split(",")]

    def permitted(self, kinds: tuple[str, ...], place: str, name: str, where: str) -> tuple[str, ...]:
        """Those of `kinds` to which it may refer in the namespace `place`; empty: its own. Raises Refused."""
        if place in {"", self.namespace}:
            return kinds
        try:
            allowed, warning = self.known.refer(self.namespace, kinds, place, name)
        except Refused as refusal:
            raise Refused(f"{where}: {refusal}") from None
        if warning:
            self.warnings.append(f"{where}: {warning}")
        return allowed
