"""Changes values, items and names in the text of definitions, and leaves every other byte as it is. Pure.

An edit replaces the text of one value, or adds, removes or renames an entry. What comes out is read again and
compared with what was meant, so an edit that a form of the file does not allow, such as one of an alias, is
refused.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from controller.authoring.document_format import is_read_otherwise
from evaluator.flags.diff import same
from evaluator.flags.document import Syntax, format_of, read_document
from evaluator.flags.known_operators import FILE, MEMBERSHIP
from evaluator.flags.model import ABSENT, Json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from evaluator.flags.model import Path

_PLAIN: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_.$-]*")
_BLOCK: Final = ("|", ">")
_COMMENT: Final = re.compile(r"[ \t]*#[^\r\n]*")
_BY_HAND: Final = "edit the file by hand"


class EditRefused(ValueError):
    """The text cannot be changed in place."""


def with_value(source: bytes, file: str, path: Path, value: Json, *, spread: bool = False) -> bytes:
    """Return the text of a definition file with `value` at `path`, whose parent must be there. A `spread`
    object that is added gets a line for each of its entries. Raises EditRefused.
    """

    def mean(parent: Any) -> None:
        parent[path[-1]] = value

    return _changed(
        source, file, path, mean, lambda text, root, in_json: _set(text, root, path, value, in_json, spread)
    )


def with_item(source: bytes, file: str, path: Path, value: Json) -> bytes:
    """Return the text with an item before that at `path`, whose parent is a list, or behind its last one.
    Raises EditRefused.
    """

    def mean(parent: Any) -> None:
        parent.insert(path[-1], value)

    return _changed(
        source, file, path, mean, lambda text, root, in_json: _insert(text, root, path, value, in_json)
    )


def without_value(source: bytes, file: str, path: Path) -> bytes:
    """Return the text without the entry or the item at `path`, and without the comments directly above it.
    Raises EditRefused.
    """

    def mean(parent: Any) -> None:
        del parent[path[-1]]

    return _changed(source, file, path, mean, lambda text, root, in_json: _remove(text, root, path, in_json))


def with_name(source: bytes, file: str, path: Path, name: str) -> bytes:
    """Return the text with another name of the entry at `path`. Raises EditRefused."""

    def mean(parent: Any) -> None:
        parent[name] = parent.pop(path[-1])

    def make(text: str, root: yaml.Node | None, in_json: bool) -> str:
        key, _ = _found(_node_at(root, path[:-1]), path[-1])
        return _splice(
            text, key.start_mark.index, key.end_mark.index, _written(name, _style(key), in_json=in_json)
        )

    return _changed(source, file, path, mean, make)


def _changed(
    source: bytes,
    file: str,
    path: Path,
    mean: Callable[[Any], None],
    make: Callable[[str, yaml.Node | None, bool], str],
) -> bytes:
    """Return what `make` makes of the text, if that says what `mean` makes of the parent of `path`."""
    before = read_document(source, file=file)
    if before.value is ABSENT or before.findings:
        raise EditRefused(f"{file} has problems; correct them first (flagstaff lint {file})")
    # Unlike copy.deepcopy, this makes two values of what an alias repeats.
    meant = json.loads(json.dumps(before.value))
    parent = meant
    for step in path[:-1]:
        parent = parent[step]
    mean(parent)
    mark = b"\xef\xbb\xbf" if source.startswith(b"\xef\xbb\xbf") else b""
    text = source.removeprefix(mark).decode()
    in_json = format_of(file) is not Syntax.YAML
    try:
        # JSON is YAML, too, but for the places that only its own reader allows: tabs, and long keys.
        root = yaml.compose(text.replace("\t", " ") if in_json else text, Loader=yaml.CSafeLoader)
        made = mark + make(text, root, in_json).encode()
    except (yaml.YAMLError, LookupError) as error:
        raise EditRefused(f"the place of the change is not found; {_BY_HAND}") from error
    after = read_document(made, file=file)
    if after.findings or not same(after.value, meant):
        where = ".".join(map(str, path))
        raise EditRefused(f"{where} cannot be changed in place as {file} is written; {_BY_HAND}")
    return made


def _set(text: str, root: yaml.Node | None, path: Path, value: Json, in_json: bool, spread: bool) -> str:
    parent = _node_at(root, path[:-1])
    entry = _entry(parent, path[-1])
    if entry is None:
        return _with_entry(text, parent, path, value, in_json=in_json, spread=spread)
    key, old = entry
    empty = isinstance(old, yaml.ScalarNode) and not old.value and not old.style
    if isinstance(parent, yaml.SequenceNode) or (
        isinstance(old, yaml.ScalarNode) and not empty and old.style not in _BLOCK
    ):
        return _splice(
            text, old.start_mark.index, _end_of(text, old), _written(value, _style(old), in_json=in_json)
        )
    colon = text.index(":", key.end_mark.index) + 1
    gap = text[colon : old.start_mark.index]
    lead = gap if gap and not gap.strip() and "\n" not in gap else " "
    remark = _COMMENT.match(gap)
    new = lead + _written(value, None, in_json=in_json) + (remark[0] if remark else "")
    return _splice(text, colon, max(colon, _end_of(text, old)), new)


def _insert(text: str, root: yaml.Node | None, path: Path, value: Json, in_json: bool) -> str:
    parent, at = _node_at(root, path[:-1]), path[-1]
    if not isinstance(parent, yaml.SequenceNode) or not isinstance(at, int):
        raise LookupError(path)  # noqa: TRY004 - what is looked up is not there
    added = _written(value, None, in_json=in_json)
    items = parent.value
    if not items:
        return _splice(text, parent.start_mark.index + 1, parent.start_mark.index + 1, added)
    item = items[min(at, len(items) - 1)]
    begin = text.rfind("\n", 0, item.start_mark.index) + 1
    indent = text[begin : item.start_mark.index]
    gap = f"{_line_end(text)}{indent}" if begin and not indent.strip() else " "
    if not parent.flow_style:
        dash = " " * parent.start_mark.column
        if at < len(items):
            start = text.rindex("-", 0, item.start_mark.index)
            begin = text.rfind("\n", 0, start) + 1
            if not text[begin:start].strip():
                above = _above(text, begin, parent.start_mark.column)
                return _splice(text, above, above, f"{dash}- {added}{_line_end(text)}")
            return _splice(text, start, start, f"- {added}{_line_end(text)}{dash}")
        end = _end_of_line(text, _end_of(text, item))
        return _splice(text, end, end, f"{_line_end(text)}{dash}- {added}")
    if at < len(items):
        return _splice(text, item.start_mark.index, item.start_mark.index, f"{added},{gap}")
    end = _end_of(text, item)
    # A comment behind the last item stays in its line.
    remark = _COMMENT.match(text, end)
    return _splice(text, end, remark.end() if remark else end, f",{remark[0] if remark else ''}{gap}{added}")


def _remove(text: str, root: yaml.Node | None, path: Path, in_json: bool) -> str:
    parent = _node_at(root, path[:-1])
    key, value = _found(parent, path[-1])
    assert isinstance(parent, yaml.CollectionNode)  # noqa: S101 - it has an entry
    if len(parent.value) == 1 and len(path) > 1:
        empty: Json = [] if isinstance(parent, yaml.SequenceNode) else {}
        return _set(text, root, path[:-1], empty, in_json, spread=False)
    parts = [part if isinstance(part, tuple) else (part, part) for part in parent.value]
    at = parts.index((key, value))
    start, end = key.start_mark.index, _end_of(text, value)
    if parent.flow_style:
        if at + 1 < len(parts):
            return _splice(text, start, parts[at + 1][0].start_mark.index, "")
        last = _end_of(text, parts[at - 1][1])
        own = _COMMENT.match(text, end)
        end = own.end() if own else end
        # A comment behind the item before stays, in a line that ends.
        remark = _COMMENT.match(text, text.index(",", last) + 1)
        line_end = "" if text[end : end + 1] in {"\r", "\n"} else _line_end(text)
        return _splice(text, last, end, f"{remark[0]}{line_end}" if remark else "")
    begin = text.rfind("\n", 0, start) + 1
    lead = text[begin:start].strip()
    if lead != ("-" if isinstance(parent, yaml.SequenceNode) else ""):
        # The first part of an item, in the line of the item's dash.
        if lead.strip("- ") or at:
            raise LookupError(path)
        return _splice(text, start, parts[1][0].start_mark.index, "")
    column = parent.start_mark.column
    begin = _above(text, begin, column)
    end = _end_of_line(text, end)
    for line in text[end:].splitlines(keepends=True)[1:]:
        if not line.lstrip(" ").startswith("#") or _indent(line) <= column:
            break
        end = _end_of_line(text, end + 2)
    before, after = text[:begin], text[end:].removeprefix("\r").removeprefix("\n")
    blank = _line_end(text)
    if before.endswith(blank * 2) and (at + 1 == len(parts) or after.startswith(blank)):
        before = before.removesuffix(blank)
    return before + after


def _above(text: str, begin: int, column: int) -> int:
    """Return where the comments directly above a line begin, in the column of what the line has."""
    lines = text[:begin].splitlines(keepends=True)
    while lines and lines[-1].lstrip(" ").startswith("#") and _indent(lines[-1]) == column:
        begin -= len(lines.pop())
    return begin


def _splice(text: str, start: int, end: int, new: str) -> str:
    return text[:start] + new + text[end:]


def _node_at(node: yaml.Node | None, path: Path) -> yaml.Node:
    for step in path:
        if isinstance(node, yaml.SequenceNode):
            node = node.value[step]
            continue
        entry = _entry(node, step)
        if entry is None:
            raise LookupError(step)
        node = entry[1]
    if node is None:
        raise LookupError(path)
    return node


def _entry(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode):
        if isinstance(step, int) and step < len(node.value):
            return node.value[step], node.value[step]
        return None
    if not isinstance(node, yaml.MappingNode):
        raise LookupError(step)  # noqa: TRY004 - what is looked up is not there
    return next(((key, value) for key, value in node.value if key.value == step), None)


def _found(node: yaml.Node, step: str | int) -> tuple[yaml.Node, yaml.Node]:
    entry = _entry(node, step)
    if entry is None:
        raise LookupError(step)
    return entry


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _end_of_line(text: str, at: int) -> int:
    """Return where the line of an offset ends, without the characters that end it."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - 1 if text[end - 1] == "\r" and end > at else end


def _style(node: yaml.Node) -> str | None:
    return node.style if isinstance(node, yaml.ScalarNode) else None


def _end_of(text: str, node: yaml.Node) -> int:
    """Return the end of the text of a node. That of a block is where its last part ends: what follows, such
    as comments, is not its own.
    """
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end_of(text, last[1] if isinstance(last, tuple) else last)
    end: int = node.end_mark.index
    return len(text[:end].rstrip()) if _style(node) in _BLOCK else end


def _with_entry(text: str, parent: yaml.Node, path: Path, value: Json, *, in_json: bool, spread: bool) -> str:
    if not isinstance(parent, yaml.MappingNode):
        raise EditRefused(f"the place of the change is no mapping; {_BY_HAND}")
    name = _written(path[-1], '"' if in_json else None, in_json=in_json)
    added = f"{name}: {_written(value, None, in_json=in_json)}"
    newline = _line_end(text)
    if not parent.value:
        return _with_first_entry(text, parent, path, (name, value), in_json=in_json, spread=spread)
    first, (key, last) = parent.value[0][0], parent.value[-1]
    at = _end_of(text, last)
    begin = text.rfind("\n", 0, first.start_mark.index) + 1
    indent = text[begin : first.start_mark.index]
    alone = begin and not indent.strip()
    if spread and isinstance(value, dict) and (alone if parent.flow_style else not in_json):
        here = indent if parent.flow_style else " " * first.start_mark.column
        added = _spread(name, value, here, _unit(here, len(path) - (not in_json)), newline, in_json=in_json)
    if parent.flow_style:
        return _splice(text, at, at, f",{newline}{indent}{added}" if alone else f", {added}")
    # A comment behind the last value stays in its line.
    at = _end_of_line(text, at)
    gap = newline
    if spread and first is not key and _follows_blank_line(text, key.start_mark.index):
        gap = newline * 2
    return _splice(text, at, at, f"{gap}{' ' * first.start_mark.column}{added}")


def _with_first_entry(
    text: str, parent: yaml.Node, path: Path, entry: tuple[str, Json], *, in_json: bool, spread: bool
) -> str:
    name, value = entry
    start, end = parent.start_mark.index, parent.end_mark.index
    if not spread or not isinstance(value, dict):
        return _splice(text, start + 1, start + 1, f"{name}: {_written(value, None, in_json=in_json)}")
    newline = _line_end(text)
    begin = text.rfind("\n", 0, start) + 1
    outer = text[begin : begin + len(text[begin:start]) - len(text[begin:start].lstrip())]
    unit = _unit(outer, len(path) - 1 - (not in_json))
    added = _spread(name, value, outer + unit, unit, newline, in_json=in_json)
    if in_json:
        return _splice(text, start, end, f"{{{newline}{outer}{unit}{added}{newline}{outer}}}")
    line = _end_of_line(text, end)
    remark = text[end:line].rstrip()
    return f"{text[:start].rstrip(' ')}{remark}{newline}{outer}{unit}{added}{text[line:]}"


def _unit(indent: str, depth: int) -> str:
    """Return the indentation of one level, of that of `depth` levels."""
    return indent[: len(indent) // depth] if depth and indent else "  "


def _spread(name: str, value: dict[str, Json], indent: str, unit: str, newline: str, *, in_json: bool) -> str:
    """Return an entry whose value is an object with a line for each of its own entries."""
    lines = [
        f"{indent}{unit}{_written(key, None, in_json=in_json)}: {_written(part, None, in_json=in_json)}"
        for key, part in value.items()
    ]
    if in_json:
        return f"{name}: {{{newline}{f',{newline}'.join(lines)}{newline}{indent}}}"
    return newline.join([f"{name}:", *lines])


def _follows_blank_line(text: str, at: int) -> bool:
    """Return whether a blank line stands before the line of an offset, and before the comments above it."""
    for line in reversed(text[: text.rfind("\n", 0, at) + 1].splitlines()):
        if not line.lstrip().startswith("#"):
            return not line.strip()
    return False


def _written(value: Json, style: str | None, *, in_json: bool) -> str:
    """Return a value as the file has others: in YAML names without quotes, or with those that were there, or
    that other readers of YAML need.
    """
    if not in_json and isinstance(value, dict):
        parts = (
            f"{_written(key, None, in_json=False)}: {_written(part, None, in_json=False)}"
            for key, part in value.items()
        )
        return f"{{{', '.join(parts)}}}"
    if not in_json and isinstance(value, list):
        return f"[{', '.join(_written(part, None, in_json=False) for part in value)}]"
    if not in_json and isinstance(value, str):
        if style == "'" and value.isprintable():
            return "'" + value.replace("'", "''") + "'"
        if not style and _PLAIN.fullmatch(value) and not is_read_otherwise(value, key=True):
            return value
    return json.dumps(value, ensure_ascii=False)


Weight = list[Any]
"""`[variant, weight]`."""


def with_percent(buckets: Sequence[Weight], variant: str, percent: float) -> list[Weight]:
    """Return buckets in which a variant has a share, and as few users as possible move: what it gains or
    gives comes from the buckets beside it, the next ones first, and all others keep their users. Raises
    EditRefused.
    """
    if any(len(bucket) not in (1, 2) or not _whole(bucket) for bucket in buckets):
        raise EditRefused(f"the weights of its fractional are not plain numbers; {_BY_HAND}")
    weights = [(bucket[0], bucket[1] if len(bucket) == 2 else 1) for bucket in buckets]
    names = [name for name, _ in weights]
    if names.count(variant) > 1:
        raise EditRefused(f"its fractional has several buckets of {variant!r}; {_BY_HAND}")
    if variant not in names:
        weights.append((variant, 0))
    total = sum(weight for _, weight in weights)
    if len(weights) < 2 or total == 0:
        raise EditRefused("its fractional has no other bucket to give users to, or to take them from")
    # Hundredths of a percent of any total are whole in 10,000 times the weights, in which no user moves.
    shares = [weight * 10_000 for _, weight in weights]
    at = next(index for index, (name, _) in enumerate(weights) if name == variant)
    gain = round(percent * 100) * total - shares[at]
    shares[at] += gain
    for other in [*range(at + 1, len(shares)), *range(at - 1, -1, -1)]:
        if gain < 0:
            shares[other] -= gain
            break
        taken = min(gain, shares[other])
        shares[other] -= taken
        gain -= taken
    return [[name, share] for (name, _), share in zip(weights, _reduce(shares, total), strict=True)]


def division(rule: Json) -> tuple[Path, list[Json]] | None:
    """Return place and arguments of the only `fractional` of a rule; None: there is none. Raises EditRefused
    where there are several.
    """
    found = [
        (path, part) for path, part in _parts(rule) if path[-1] == "fractional" and isinstance(part, list)
    ]
    if len(found) > 1:
        raise EditRefused(f"its rule divides users in several places; {_BY_HAND}")
    return found[0] if found else None


def listing(rule: Json) -> tuple[Path, list[Json] | dict[str, Json]]:
    """Return place and items of the only list of a rule that `in` searches, or the object that names its
    file. Raises EditRefused.
    """
    searched = [(path, part) for path, part in _parts(rule) if path[-2:] == (MEMBERSHIP, 1)]
    found = [(path, part) for path, part in searched if isinstance(part, list) or FILE in part]
    if len(found) != 1:
        raise EditRefused(f"its rule searches {'several lists' if found else 'no list'} by `in`; {_BY_HAND}")
    return found[0]


def _parts(rule: Json) -> Iterator[tuple[Path, list[Json] | dict[str, Json]]]:
    """Yield each list and each object within a rule, with its place."""
    pending: list[tuple[Json, Path]] = [(rule, ())]
    while pending:
        value, path = pending.pop()
        parts = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for step, part in parts:
            if isinstance(part, list | dict):
                yield (*path, step), part
                pending.append((part, (*path, step)))


def _whole(bucket: Weight) -> bool:
    return isinstance(bucket[0], str) and all(type(weight) is int and weight >= 0 for weight in bucket[1:])


def _reduce(shares: list[int], total: int) -> list[int]:
    """Return the same shares of the smallest of some usual totals."""
    scale = total * 10_000
    for wanted in (total, 100, 1_000, 10_000):
        if all(share * wanted % scale == 0 for share in shares):
            return [share * wanted // scale for share in shares]
    return shares
