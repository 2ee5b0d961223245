"""Changes one field of a flag in the text of its file, and leaves every other byte as it is. Pure.

An edit replaces the text of one value, or adds an entry. What comes out is read again and compared with what
was meant, so an edit that a form of the file does not allow, such as one of an alias, is refused.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from evaluator.flags.diff import same
from evaluator.flags.document import Syntax, format_of, read_document
from evaluator.flags.model import ABSENT, Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evaluator.flags.model import Path

_PLAIN: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_.$-]*")
_OTHER_WORDS: Final = frozenset({"null", "true", "false"})
_BLOCK: Final = ("|", ">")
_BY_HAND: Final = "edit the file by hand"


class EditRefused(ValueError):
    """The text cannot be changed in place."""


def with_value(source: bytes, file: str, path: Path, value: Json) -> bytes:
    """Return the text of a definition file with `value` at `path`, whose parent must be there. Raises
    EditRefused.
    """
    before = read_document(source, file=file)
    if before.value is ABSENT or before.findings:
        raise EditRefused(f"{file} has problems; correct them first (flagstaff lint {file})")
    # Unlike copy.deepcopy, this makes two values of what an alias repeats.
    meant = json.loads(json.dumps(before.value))
    parent = meant
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    mark = b"\xef\xbb\xbf" if source.startswith(b"\xef\xbb\xbf") else b""
    text = source.removeprefix(mark).decode()
    made = mark + _edit(text, path, value, in_json=format_of(file) is not Syntax.YAML).encode()
    after = read_document(made, file=file)
    if after.findings or not same(after.value, meant):
        where = ".".join(map(str, path))
        raise EditRefused(f"{where} cannot be changed in place as {file} is written; {_BY_HAND}")
    return made


def _edit(text: str, path: Path, value: Json, *, in_json: bool) -> str:
    # JSON is YAML, too, but for the places that only its own reader allows: tabs, and long keys.
    try:
        root = yaml.compose(text.replace("\t", " ") if in_json else text, Loader=yaml.CSafeLoader)
        parent = _node_at(root, path[:-1])
    except (yaml.YAMLError, LookupError) as error:
        raise EditRefused(f"the place of the change is not found; {_BY_HAND}") from error
    entry = _entry(parent, path[-1])
    if entry is None:
        return _with_entry(text, parent, path[-1], value, in_json=in_json)
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
    return _splice(text, colon, max(colon, _end_of(text, old)), lead + _written(value, None, in_json=in_json))


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


def _with_entry(text: str, parent: yaml.Node, step: str | int, value: Json, *, in_json: bool) -> str:
    if not isinstance(parent, yaml.MappingNode):
        raise EditRefused(f"the place of the change is no mapping; {_BY_HAND}")
    name = _written(step, '"' if in_json else None, in_json=in_json)
    added = f"{name}: {_written(value, None, in_json=in_json)}"
    if not parent.value:
        at = parent.start_mark.index + 1
        return _splice(text, at, at, added)
    first, (_, last) = parent.value[0][0], parent.value[-1]
    at = _end_of(text, last)
    begin = text.rfind("\n", 0, first.start_mark.index) + 1
    indent = text[begin : first.start_mark.index]
    alone = not indent.strip()
    if parent.flow_style:
        return _splice(text, at, at, f",\n{indent}{added}" if alone and begin else f", {added}")
    # A comment behind the last value stays in its line.
    end = text.find("\n", at)
    at = len(text) if end < 0 else end
    line_end = "\n"
    if text[at - 1] == "\r":
        at, line_end = at - 1, "\r\n"
    return _splice(text, at, at, f"{line_end}{' ' * first.start_mark.column}{added}")


def _written(value: Json, style: str | None, *, in_json: bool) -> str:
    """Return a value as the file has others: in YAML names without quotes, or with those that were there."""
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
        if not style and _PLAIN.fullmatch(value) and value.lower() not in _OTHER_WORDS:
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
    found: list[tuple[Path, list[Json]]] = []
    pending: list[tuple[Json, Path]] = [(rule, ())]
    while pending:
        value, path = pending.pop()
        parts = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for step, part in parts:
            if step == "fractional" and isinstance(part, list):
                found.append(((*path, step), part))
            pending.append((part, (*path, step)))
    if len(found) > 1:
        raise EditRefused(f"its rule divides users in several places; {_BY_HAND}")
    return found[0] if found else None


def _whole(bucket: Weight) -> bool:
    return isinstance(bucket[0], str) and all(type(weight) is int and weight >= 0 for weight in bucket[1:])


def _reduce(shares: list[int], total: int) -> list[int]:
    """Return the same shares of the smallest of some usual totals."""
    scale = total * 10_000
    for wanted in (total, 100, 1_000, 10_000):
        if all(share * wanted % scale == 0 for share in shares):
            return [share * wanted // scale for share in shares]
    return shares
