"""Says what a document is that is broken or holds no flags, by a table of texts, and one of the formats of
other tools. It is asked only after a document could not be read as flags. Pure.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from evaluator.flags.model import ABSENT, Absent, Json

if TYPE_CHECKING:
    from collections.abc import Callable


class Unread(NamedTuple):
    """A text that is broken, or whose value is no object."""

    data: bytes
    text: str
    offset: int
    """Where the reader stopped, in characters; 0 if it read a value."""
    value: Json | Literal[Absent.ABSENT] = ABSENT
    yaml: bool = False


class Recognised(NamedTuple):
    """What a text is and what to do, and the offset of what tells it."""

    message: str
    offset: int


if TYPE_CHECKING:
    Find = Callable[[Unread], int | None]

_START: Final = 300
"""Bytes of the beginning that tell how a text is encoded."""


def _begins(*prefixes: bytes, at: int = 0) -> Find:
    return lambda unread: 0 if unread.data.startswith(prefixes, at) else None


def _somewhere(pattern: str, *, json_only: bool = False) -> Find:
    compiled = re.compile(pattern, re.MULTILINE)

    def find(unread: Unread) -> int | None:
        match = None if json_only and unread.yaml else compiled.search(unread.text)
        return match and match.start()

    return find


def _at_stop(pattern: str) -> Find:
    """Where the reader of JSON stopped."""
    compiled = re.compile(pattern)

    def find(unread: Unread) -> int | None:
        match = None if unread.yaml else compiled.match(unread.text, unread.offset)
        return match and match.start()

    return find


def _is_utf_16(unread: Unread) -> int | None:
    start = unread.data[:_START]
    marked = start.startswith((b"\xff\xfe", b"\xfe\xff"))
    return 0 if marked or start.count(0) * 4 > len(start) else None


def _find_template(unread: Unread) -> int | None:
    text, stop = unread.text, unread.offset
    if not unread.yaml:
        match = re.compile(r"(?<=\{)[{%]|\{[{%]|<%").match(text, stop)
        return match and match.start() - (len(match[0]) == 1)
    start = text.rfind("\n", 0, stop) + 1
    match = re.compile(r"\{\{|\{%|<%").search(text, start, (text + "\n").index("\n", start))
    return match and match.start()


def _find_comma(unread: Unread) -> int | None:
    """A comma before a closing bracket, at which or behind which the reader stopped."""
    before = unread.text[: unread.offset + 1].rstrip(" \t\r\n}]")
    closes = re.match(r",\s*[}\]]", unread.text[len(before) - 1 :])
    return len(before) - 1 if closes and not unread.yaml else None


def _is_text_of_flags(unread: Unread) -> int | None:
    value = unread.value
    return 0 if isinstance(value, str) and value.lstrip().startswith(("{", "flags:")) else None


def _is_base64(unread: Unread) -> int | None:
    start = "".join(unread.text.strip().strip("\"'")[:_START].split())
    try:
        decoded = b64decode(start[: len(start) // 4 * 4], validate=True)
    except (NotBase64, ValueError):
        return None
    return 0 if decoded.lstrip().startswith((b"{", b"flags:", b"apiVersion:", b"\x1f\x8b")) else None


TEMPLATE: Final = "the {{ … }} or {% … %} of a template stands here; check what the template makes"
_TEXTS: Final[tuple[tuple[Find, str], ...]] = (
    (_begins(b"\x1f\x8b"), "this is a gzip archive; unpack it"),
    (_begins(b"PK\x03\x04", b"PK\x05\x06"), "this is a zip archive; unpack it"),
    (_begins(b"ustar", at=257), "this is a tar archive; unpack it"),
    (_begins(b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf"), "this is an archive; unpack it"),
    (_is_utf_16, "this is UTF-16 or UTF-32; save the file as UTF-8"),
    (
        _begins(b"version https://git-lfs.github.com/spec/"),
        "this is the pointer of Git LFS, not the file, and nothing is fetched from LFS; keep definitions out "
        "of it (git lfs untrack)",
    ),
    (
        _begins(b"-----BEGIN ", b"age-encryption.org/"),
        "this is a key or an encrypted file; sops encrypts the values of definitions and keeps their keys",
    ),
    (
        _somewhere(r"\A\s*<[!?A-Za-z]"),
        "this is HTML or XML, such as the error page of a server; check the address or the file",
    ),
    (
        _somewhere(r"^(?:<{7}|>{7}|\|{7})(?: |$)"),
        "a merge stopped here with a conflict; keep one of the two sides, and remove the lines with <<<<<<<, "
        "======= and >>>>>>>",
    ),
    (_find_template, TEMPLATE),
    (
        _is_text_of_flags,
        "the document is one text, which holds definitions; write what is in the text, without the quotes",
    ),
    (_is_base64, "this is base64; decode it (base64 -d)"),
    (_somewhere(r"\A(?:\s*#.*\n|\s)*\[\[?[\w.\"-]+\]\]?\s*$"), "this is TOML; write JSON or YAML"),
    (
        _at_stop("//|/[*]|#"),
        "JSON has no comments; remove this one, or write YAML, whose comments begin with #",
    ),
    (_somewhere(r"^\s*(?:// |/[*])"), "YAML's comments begin with #"),
    (_find_comma, "nothing follows this comma; remove it"),
    (_at_stop("'"), "JSON has double quotes alone; write \" instead of '"),
    (_at_stop("[\u201c\u201d\u2018\u2019\u201e\xab]"), 'this is a typographic quote; write "'),
    (
        _at_stop(r"\$"),
        "a variable stands outside of quotes; write it within: a text that is one variable becomes its value",
    ),
    (_at_stop(r"(?:True|False|None|undefined|NULL)\b"), "JSON writes true, false and null"),
    (
        _somewhere(
            r"\A(?:\s*#.*\n|---.*\n|\s)*[\"']?(?:flags|apiVersion|\$schema|metadata)[\"']?:", json_only=True
        ),
        "this is YAML in a file that is not named so; name it *.yaml",
    ),
    (_at_stop(r"[A-Za-z_$][\w$-]*\s*:"), "a key of JSON stands in double quotes"),
)
"""(where it is seen, what it is and what to do); the first that fits counts."""


def recognise_text(unread: Unread) -> Recognised | None:
    """Return what a text is that is broken or has no object."""
    for find, message in _TEXTS:
        offset = find(unread)
        if offset is not None:
            return Recognised(message, offset)
    return None


if TYPE_CHECKING:
    Fits = Callable[[Any], bool]


def _items(part: Json) -> list[Any]:
    """The objects in a list or an object."""
    parts = part if isinstance(part, list) else part.values() if isinstance(part, dict) else ()
    return [item for item in parts if isinstance(item, dict)]


def _has(*names: str) -> Fits:
    """Whether it is an object that has all of these."""
    return lambda top: isinstance(top, dict) and top.keys() >= {*names}


def _some(fits: Fits, *below: str) -> Fits:
    """Whether an object in it, or in its part `below`, fits."""

    def fit(top: Any) -> bool:
        for name in below:
            top = top.get(name) if isinstance(top, dict) else None
        return any(map(fits, _items(top)))

    return fit


def _any(*fits: Fits) -> Fits:
    return lambda top: any(fit(top) for fit in fits)


def _is_flipt_flag(item: dict[str, Any]) -> bool:
    return str(item.get("type")).endswith("_FLAG_TYPE") or (
        {"key", "enabled"} <= item.keys() and "state" not in item and "feature_state_value" not in item
    )


_AS_IN_GUIDE: Final = "write its flags anew: the guide docs/guides/coming-from-{}.md shows how"
_ANEW: Final = "write its flags anew, with `state` and `variants`: docs/definitions.md says how"
_FORMATS: Final[tuple[tuple[str, Fits, str], ...]] = (
    (
        "OpenFeature's flag manifest",
        _some(_has("flagType", "defaultValue"), "flags"),
        "it declares flags for typed code, and serves none; write definitions beside it",
    ),
    (
        "Flipt",
        _any(
            lambda top: isinstance(top.get("flags"), list) and _some(_is_flipt_flag, "flags")(top),
            _some(_has("constraints", "match_type"), "segments"),
        ),
        _AS_IN_GUIDE.format("flipt"),
    ),
    (
        "LaunchDarkly",
        _any(
            _has("flagValues"),
            _some(_has("variations", "fallthrough"), "flags"),
            _some(_has("variations", "on"), "flags"),
            _some(_has("variations", "environments"), "items"),
            _has("variations", "environments"),
        ),
        _AS_IN_GUIDE.format("launchdarkly"),
    ),
    ("GO Feature Flag", _some(_has("variations", "defaultRule")), _ANEW),
    (
        "Unleash",
        _any(_has("features", "featureStrategies"), _some(_has("name", "strategies"), "features")),
        _ANEW,
    ),
    ("ConfigCat", _any(_has("p", "f"), _some(_has("t", "v"), "f")), _ANEW),
    (
        "Flagsmith",
        _any(
            _has("feature_states", "project"),
            _some(_has("feature", "feature_state_value"), "flags"),
            _some(_has("feature", "feature_state_value")),
            _some(_has("name", "initial_value")),
        ),
        _ANEW,
    ),
    ("GrowthBook", _any(_has("encryptedFeatures"), _some(_has("defaultValue"), "features")), _ANEW),
    (
        "Microsoft's feature management",
        _any(
            _has("feature_management"), _has("FeatureManagement"), _has("FeatureFlags", "FeatureManagement")
        ),
        _ANEW,
    ),
    (
        "Featurevisor",
        _any(
            _has("bucketBy", "rules"),
            _has("bucketBy", "environments"),
            _some(_has("bucketBy"), "features"),
            _has("schemaVersion", "features", "segments"),
        ),
        _ANEW,
    ),
)
"""(whose format it is, what tells it, what to do); the first that fits counts."""


def recognise_format(top: Json) -> str | None:
    """Return the message about a document of another tool, which holds no definitions of flagd's format."""
    if isinstance(top, dict | list):
        for name, fits, advice in _FORMATS:
            if (isinstance(top, dict) or name == "Flagsmith") and fits(top):
                return f"this is a file of {name}, and holds no definitions; {advice}"
    return None
