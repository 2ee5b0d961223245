"""What is no flag file is called what it is, with the way out."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.flags.document import read_document
from evaluator.flags.layer import read_layer
from evaluator.flags.merge import merge, parse
from evaluator.flags.model import ABSENT

GOOD: Final = b'{"flags": {"a": {"state": "ENABLED", "variants": {"on": true}, "defaultVariant": "on"}}}'
LFS: Final = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
CONFLICT: Final = (
    b'{"flags": {\n<<<<<<< HEAD\n"a": {}\n=======\n"a": {"state": "ENABLED"}\n>>>>>>> other\n}}\n'
)
BASE64: Final = base64.encodebytes(GOOD * 3)


def zipped() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("flags.json", GOOD)
    return target.getvalue()


def tarred() -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        entry = tarfile.TarInfo("flags.json")
        entry.size = len(GOOD)
        archive.addfile(entry, io.BytesIO(GOOD))
    return target.getvalue()


TEXTS: Final[dict[str, tuple[str, bytes, str, int, int]]] = {
    "gzip": ("a.json", gzip.compress(GOOD), "this is a gzip archive", 1, 1),
    "gzip in YAML": ("a.yaml", gzip.compress(GOOD), "this is a gzip archive", 1, 1),
    "zip": ("a.json", zipped(), "this is a zip archive", 1, 1),
    "tar": ("a.json", tarred(), "this is a tar archive", 1, 1),
    "tar in YAML": ("a.yaml", tarred(), "this is a tar archive", 1, 1),
    "zstd": ("a.json", b"\x28\xb5\x2f\xfd\x00", "this is an archive", 1, 1),
    "UTF-16": ("a.json", GOOD.decode().encode("utf-16"), "this is UTF-16", 1, 1),
    "UTF-16 without a mark": ("a.json", GOOD.decode().encode("utf-16-le"), "this is UTF-16", 1, 1),
    "UTF-16 in YAML": ("a.yaml", b"flags: {}\n".decode().encode("utf-16-be"), "this is UTF-16", 1, 1),
    "LFS": ("a.json", LFS, "the pointer of Git LFS", 1, 1),
    "LFS in YAML": ("a.yaml", LFS, "the pointer of Git LFS", 1, 1),
    "a key": ("a.yaml", b"-----BEGIN PGP MESSAGE-----\n\nhQEMA\n", "an encrypted file", 1, 1),
    "HTML": ("a.json", b"<!doctype html>\n<p>Sign in", "this is HTML or XML", 1, 1),
    "HTML in YAML": ("a.yaml", b"<html>\n<body class=x>: {\n", "this is HTML or XML", 1, 1),
    "XML": ("a.json", b'<?xml version="1.0"?><Error/>', "this is HTML or XML", 1, 1),
    "a conflict": ("a.json", CONFLICT, "a merge stopped here", 2, 1),
    "a conflict in YAML": (
        "a.yaml", b"flags:\n<<<<<<< HEAD\n  a: {}\n=======\n>>>>>>> b\n", "a merge stopped here", 2, 1,
    ),
    "Helm": ("a.json", b'{"flags": {{ .Values.flags | toJson }} }', "of a template", 1, 11),
    "Helm in YAML": ("a.yaml", b"flags: {{ .Values.flags }}\n", "of a template", 1, 8),
    "Jinja": ("a.json", b'{"flags": {\n{% for flag in flags %}\n}}', "of a template", 2, 1),
    "Jinja in YAML": ("a.yaml", b"flags:\n{% for flag in flags %}\n  a: {}\n", "of a template", 2, 1),
    "envsubst": ("a.json", b'{"flags": ${FLAGS}}', "a variable stands outside of quotes", 1, 11),
    "a text in a text": ("a.json", json.dumps(GOOD.decode()).encode(), "the document is one text", 1, 1),
    "a block": ("a.yaml", b"|\n  flags: {}\n", "the document is one text", 1, 1),
    "base64": ("a.json", BASE64, "this is base64", 1, 1),
    "base64 in YAML": ("a.yaml", BASE64, "this is base64", 1, 1),
    "TOML": ("a.json", b'# flags\n[flags.a]\nstate = "ENABLED"\n', "this is TOML", 1, 1),
    "a comment": ("a.json", b'// flags\n{"flags": {}}', "JSON has no comments", 1, 1),
    "a comment at the end": ("a.json", b'{"flags": {} /* none */}', "JSON has no comments", 1, 14),
    "YAML's comment": ("a.json", b'# flags\n{"flags": {}}', "JSON has no comments", 1, 1),
    "a comment of C": ("a.yaml", b"// all flags\nflags: {}\n", "YAML's comments begin with #", 1, 1),
    "a comma in an object": ("a.json", b'{"flags": {},\n}', "nothing follows this comma", 1, 13),
    "a comma in a list": ("a.json", b'{"flags": [1, ] }', "nothing follows this comma", 1, 13),
    "single quotes": ("a.json", b"{'flags': {}}", "JSON has double quotes alone", 1, 2),
    "typographic quotes": ("a.json", "{“flags”: {}}".encode(), "a typographic quote", 1, 2),
    "Python's words": ("a.json", b'{"flags": {"a": True}}', "JSON writes true", 1, 17),
    "YAML under another name": ("a.json", b"---\nflags:\n  a: {}\n", "this is YAML", 1, 1),
    "keys without quotes": ("a.json", b"{flags: {}}", "a key of JSON stands in double quotes", 1, 2),
    "cut off": ("a.json", GOOD[:40], "is the file cut off?", 1, 38),
    "nothing else": ("a.json", b'{"flags" {}}', "the JSON is broken here: expecting ':'", 1, 10),
}  # fmt: skip


@pytest.mark.parametrize(("file", "content", "words", "line", "column"), TEXTS.values(), ids=TEXTS)
def test_a_text_is_called_what_it_is_once_and_with_its_place(
    file: str, content: bytes, words: str, line: int, column: int
) -> None:
    document = read_document(content, file=file)
    (problem,) = document.problems
    assert document.value is ABSENT
    assert words in problem.message
    assert (problem.line, problem.column) == (line, column)
    assert [found.message for found in parse(content, file=file).problems] == [problem.message]


FORMATS: Final[dict[str, Any]] = {
    "OpenFeature's flag manifest": {
        "flags": {"a": {"flagType": "boolean", "defaultValue": False, "description": "d"}}
    },
    "Flipt": {"version": "1.2", "namespace": "x", "flags": [{"key": "a", "name": "A", "enabled": True}]},
    "Flipt, its segments": {"segments": [{"key": "s", "match_type": "ALL", "constraints": []}]},
    "LaunchDarkly": {"flags": {"a": {"on": True, "variations": [True], "fallthrough": {}}}, "segments": {}},
    "LaunchDarkly, values": {"flagValues": {"a": True}},
    "LaunchDarkly, API": {"items": [{"key": "a", "variations": [], "environments": {}}], "totalCount": 1},
    "LaunchDarkly, one flag": {"key": "a", "variations": [], "environments": {}},
    "GO Feature Flag": {"a": {"variations": {"on": True}, "defaultRule": {"variation": "on"}}},
    "Unleash": {"features": [{"name": "a"}], "featureStrategies": []},
    "Unleash, of a client": {"version": 2, "features": [{"name": "a", "enabled": True, "strategies": []}]},
    "ConfigCat": {"p": {"u": "x", "s": "y"}, "f": {"a": {"t": 0, "v": {"b": True}}}},
    "Flagsmith": [{"name": "a", "type": "STANDARD", "initial_value": None, "enabled": True}],
    "Flagsmith, an environment": {"feature_states": [], "project": {"segments": []}},
    "GrowthBook": {"status": 200, "features": {"a": {"defaultValue": True, "rules": []}}},
    "Microsoft's feature management": {"feature_management": {"feature_flags": [{"id": "a"}]}},
    "Featurevisor": {"description": "d", "bucketBy": "userId", "rules": {"production": []}},
    "Featurevisor, built": {"schemaVersion": "2", "revision": "1", "segments": {}, "features": {}},
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_of_another_tool_is_passed_over_by_its_name(name: str) -> None:
    content = json.dumps(FORMATS[name]).encode()
    words = f"this is a file of {name.partition(',')[0]}, and holds no definitions; "
    alone = parse(content, file="a.json")
    assert [problem.code for problem in alone.problems] == ["missing-flags"]
    assert alone.problems[0].message.startswith(words)
    beside = merge([read_layer([("a.json", content), ("b.json", GOOD)])])
    assert (beside.problems, list(beside.flag_set.flags)) == ((), ["a"])
    assert [note.message.startswith(words) for note in beside.notes] == [True]


@pytest.mark.parametrize(
    "top",
    [
        {"flags": {"a": {"state": "DISABLED", "metadata": {"enabled": True, "flagType": "x"}}}},
        {"flags": {"a": {"defaultVariant": "on"}}, "$evaluators": {"segments": {"var": "x"}}},
        {"flags": [{"key": "a", "state": "ENABLED", "enabled": True}]},
        {"flags": {"features": {"state": "ENABLED"}, "project": {"state": "ENABLED"}}},
        {"flags": {}, "metadata": {"features": "x", "variations": "y"}},
    ],
)
def test_definitions_that_resemble_another_format_are_read(top: dict[str, Any]) -> None:
    layer = read_layer([("a.json", json.dumps(top).encode())])
    assert (layer.has_flags, list(layer.flags)) == (True, [*({} if not top["flags"] else layer.flags)])
    assert all(not document.passed_over for document in layer.documents)


def test_pages_that_messages_name_are_there() -> None:
    told = [parse(json.dumps(top).encode(), file="a.json").problems[0].message for top in FORMATS.values()]
    pages = {page for message in told for page in re.findall(r"docs/\S+\.md", message)}
    assert len(pages) == 3
    assert [page for page in pages if not (Path(__file__).parents[4] / page).is_file()] == []


@given(
    st.sampled_from([content for _, content, *_ in TEXTS.values()]),
    st.integers(0, 200),
    st.binary(max_size=4),
    st.sampled_from(["a.json", "a.yaml"]),
)
def test_a_text_that_is_broken_anywhere_has_its_problems_and_no_failure(
    content: bytes, at: int, more: bytes, file: str
) -> None:
    document = read_document(content[:at] + more + content[at:], file=file)
    assert document.value is not ABSENT or len(document.problems) == 1
