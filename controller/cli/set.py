"""`flagstaff set`: changes a flag or a list in its file, and says what that changes."""

from __future__ import annotations

import argparse
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from controller.authoring.definition_edits import (
    EditRefused,
    division,
    listing,
    with_item,
    with_percent,
    with_value,
    without_value,
)
from controller.cli.definition_changes import add_change_arguments, choose, finish, read_definition_change
from controller.cli.printing import USAGE, Exit, did_you_mean, exit_on
from controller.flagsets.segments import SegmentRefused, Segments, with_listed, without_listed
from evaluator.flags.document import read_document
from evaluator.flags.known_operators import FILE
from evaluator.flags.model import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.cli.definition_changes import DefinitionChange
    from evaluator.flags.model import Flag, Json
    from evaluator.flags.problems import Document, Piece

_LISTS: Final = ("--add-to", "--remove-from")


def configure_set(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("flag", metavar="FLAG", nargs="?", help="the flag's key")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--default", metavar="VARIANT", help="serve VARIANT where no rule chooses")
    what.add_argument(
        "--percent", type=_percent, metavar="VARIANT=PERCENT",
        help="serve VARIANT to this share of the users that the rule divides; as few users as possible move",
    )  # fmt: skip
    what.add_argument("--rule", metavar="RULE", help="the rule (`targeting`), as JSON or YAML")
    what.add_argument(
        "--enable", dest="state", action="store_const", const="ENABLED", help="have the flag evaluated"
    )
    what.add_argument(
        "--disable", dest="state", action="store_const", const="DISABLED",
        help="have applications use their own defaults",
    )  # fmt: skip
    for option, words in zip(_LISTS, ("add VALUE to", "take VALUE out of"), strict=True):
        what.add_argument(
            option, nargs=2, metavar=("EVALUATOR", "VALUE"),
            help=f"{words} the list of a shared rule, an entry of `$evaluators`",
        )  # fmt: skip
    add_change_arguments(
        parser, layer="the layer to change, one of --path (default: the only one that defines it)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0: changed, or nothing to change; 1: the change would be a problem; 2: wrong usage, or a file that
    cannot be changed in place; 3: no source.
    """
    listed = options.add_to or options.remove_from
    if (options.flag is None) is not bool(listed):
        raise Exit(f"{' and '.join(_LISTS)} name an entry of `$evaluators`, all others need a FLAG", USAGE)
    change = read_definition_change(options)
    if listed:
        _change_list(change, options, *listed)
        return finish(change, options)
    pieces = {
        path: layer.flags[options.flag]
        for path, layer in change.layers.items()
        if options.flag in layer.flags and isinstance(layer.flags[options.flag].value, dict)
    }
    if not pieces:
        hint = did_you_mean(options.flag, change.served.flags)
        raise Exit(f"no layer defines the flag {options.flag!r}{hint}", USAGE)
    several = f"several layers define the flag {options.flag!r}"
    piece = pieces[choose("--layer", options.layer, [*pieces], several)]
    with exit_on(USAGE, EditRefused):
        values = _values(piece, options, change.served.flags.get(options.flag))
    for path, value in values:
        change.edit(piece.document, partial(with_value, path=(*piece.path, *path), value=value))
    return finish(change, options)


def _change_list(change: DefinitionChange, options: argparse.Namespace, name: str, word: str) -> None:
    """Add a value to the list of a shared rule, or remove it. Raises Exit."""
    pieces = {
        path: layer.evaluators[name]
        for path, layer in change.layers.items()
        if name in layer.evaluators and layer.evaluators[name].value is not None
    }
    if not pieces:
        known = {known for layer in change.layers.values() for known in layer.evaluators}
        raise Exit(f"no layer has {name!r} in `$evaluators`{did_you_mean(name, known)}", USAGE)
    several = f"several layers have {name!r} in `$evaluators`"
    piece = pieces[choose("--layer", options.layer, [*pieces], several)]
    with exit_on(USAGE, EditRefused):
        place, values = listing(piece.value)
    if isinstance(values, dict):
        _change_file(change, piece.document, values, word, adds=options.remove_from is None)
        return
    value = _like(values, word)
    where = (*piece.path, *place)
    if options.remove_from is None:
        if value not in values:
            change.edit(piece.document, partial(with_item, path=(*where, len(values)), value=value))
        return
    _require_listed(value, values)
    at = values.index(value)
    change.edit(piece.document, partial(without_value, path=(*where, at)))


def _change_file(
    change: DefinitionChange, document: Document, named: dict[str, Json], word: str, *, adds: bool
) -> None:
    """Add a value to a list in a file, or remove it. Raises Exit."""
    column = named.get("column")
    column = column if isinstance(column, str) else None
    try:
        file, values = Segments(change.tree.files).values(document, named)
        source = change.tree.files[file]
        if adds:
            if word not in values:
                change.changed[file] = with_listed(source, column, word)
            return
    except SegmentRefused as refused:
        raise Exit(f"{named[FILE]!r} beside {document.file}: {refused}", USAGE) from refused
    _require_listed(word, values)
    change.changed[file] = without_listed(source, column, word)


def _require_listed(value: Json, values: Sequence[Json]) -> None:
    if value not in values:
        raise Exit(f"the list has no {value!r}{did_you_mean(str(value), map(str, values))}", USAGE)


def _like(values: Sequence[Json], word: str) -> Json:
    """Return a word as the list has others: as a number where all are numbers."""
    if not values or not all(type(value) in (int, float) for value in values):
        return word
    number = read_document(word.encode(), file="VALUE.json").value
    if type(number) not in (int, float):
        raise Exit(f"{word!r} is no number, and the list has numbers alone", USAGE)
    return number


def _percent(text: str) -> tuple[str, float]:
    variant, equals, share = text.rpartition("=")
    try:
        percent = float(share.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if (
        not equals
        or not variant
        or not 0 <= percent <= 100
        or round(percent * 100) != round(percent * 100, 9)
    ):
        message = f"{text!r}: write VARIANT=PERCENT, from 0 to 100 with two decimals at most, such as on=25"
        raise argparse.ArgumentTypeError(message)
    return variant, percent


def _values(
    piece: Piece, options: argparse.Namespace, served: Flag | None
) -> Sequence[tuple[tuple[str | int, ...], Json]]:
    """Places in the flag and what is to be there. Raises EditRefused, Exit."""
    if options.state is not None:
        return [(("state",), options.state)]
    if options.default is not None:
        return [(("defaultVariant",), options.default)]
    if options.rule is not None:
        document = read_document(options.rule.encode(), file="--rule.yaml")
        if not isinstance(document.value, dict) or document.findings:
            raise Exit(f"--rule is no object of JSON or YAML: {options.rule}", USAGE)
        return [(("targeting",), document.value)]
    if served is None:
        raise EditRefused("the flag has an error; correct it first (flagstaff lint)")
    return _divide(piece, served, *options.percent)


def _divide(
    piece: Piece, flag: Flag, variant: str, percent: float
) -> list[tuple[tuple[str | int, ...], Json]]:
    if variant not in flag.variants:
        raise Exit(f"the flag has no variant {variant!r}{did_you_mean(variant, flag.variants)}", USAGE)
    own = piece.value.get("targeting")
    rule: Any = own if own is not None else None if flag.targeting is ABSENT else deepcopy(flag.targeting)
    found = division(rule)
    if found is None:
        if rule:
            raise EditRefused("its rule divides no users, so that it has no percentage; write a --rule")
        others = [name for name in flag.variants if name != variant]
        if flag.default_variant not in (variant, None):
            others = [str(flag.default_variant)]
        if len(others) != 1:
            raise EditRefused("it has several other variants, and none is the default; write a --rule")
        made = {"fractional": with_percent([[variant, 0], [others[0], 100]], variant, percent)}
        return [(("targeting",), made)]
    place, arguments = found
    start = 0 if isinstance(arguments[0], list) else 1
    old = arguments[start:]
    new = with_percent(old, variant, percent)
    if own is None:
        node = rule
        for step in place[:-1]:
            node = node[step]
        node[place[-1]] = [*arguments[:start], *new]
        return [(("targeting",), rule)]
    if [bucket[:1] for bucket in old] != [bucket[:1] for bucket in new] or any(
        len(bucket) == 1 for bucket in old
    ):
        return [(("targeting", *place), [*arguments[:start], *new])]
    return [
        (("targeting", *place, start + at, 1), bucket[1])
        for at, bucket in enumerate(new)
        if bucket[1] != old[at][1]
    ]
