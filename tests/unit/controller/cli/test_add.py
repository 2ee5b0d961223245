"""`flagstaff add`: a new flag in a file of definitions."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from controller.cli import main
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

BASE = """\
flags: # all of them
  cart:
    state: ENABLED
    variants: {on: true, off: false}
    defaultVariant: off  # for now
"""
ADDED = """\
  banner:
    state: ENABLED
    variants: {"on": true, "off": false}
    defaultVariant: "off"
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The folder of a layer in a repository."""
    made = Repository(tmp_path / "flags")
    folder = made.path / "base"
    folder.mkdir()
    (folder / "flags.yaml").write_text(BASE)
    (folder / "shared.yaml").write_text("$evaluators: {beta: {in: [a, [a]]}}\nflags: {}\n")
    for words in (["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(made.path), *words], check=True)
    return folder


def add(base: Path, *words: str) -> int:
    return main(["add", *words, "--source", str(base.parent), "--path", "base"])


def test_a_flag_stands_behind_the_others_of_the_file_that_has_some(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(base, "banner") == 0
    assert (base / "flags.yaml").read_text() == BASE + ADDED
    assert "+ banner: " in capsys.readouterr().out


def test_type_variants_default_and_metadata_are_written(base: Path) -> None:
    variants = ("--variant", "few=10", "--variant", "many=100", "--default", "many")
    life = ("--owner", "shop", "--expires", "2026-12-31", "--metadata", "type=release")
    assert add(base, "items", "--type", "integer", *variants, *life) == 0
    assert (base / "flags.yaml").read_text() == BASE + (
        "  items:\n    state: ENABLED\n    variants: {few: 10, many: 100}\n    defaultVariant: many\n"
        '    metadata: {owner: shop, expires: "2026-12-31", type: release}\n'
    )


def test_a_new_file_gets_the_flag_and_is_committed(base: Path) -> None:
    assert add(base, "banner", "--file", "base/banner.yaml", "--commit") == 0
    assert (base / "banner.yaml").read_text() == f"flags:\n{ADDED}"
    assert main(["fmt", "--check", str(base / "banner.yaml")]) == 0
    shown = ["git", "-C", str(base), "show", "--format=%s", "--name-only"]
    subject, _, file = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.splitlines()
    assert subject.startswith("banner: ")
    assert file == "base/banner.yaml"


def test_a_patch_makes_the_new_file(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert add(base, "banner", "--file", "base/banner.json", "-o", "patch") == 0
    assert not (base / "banner.json").exists()
    patch = capsys.readouterr().out
    subprocess.run(["git", "-C", str(base.parent), "apply"], input=patch, text=True, check=True)
    assert (base / "banner.json").read_text() == (
        '{\n  "flags": {\n    "banner": {\n      "state": "ENABLED",\n'
        '      "variants": {"on": true, "off": false},\n      "defaultVariant": "off"\n    }\n  }\n}\n'
    )


def test_a_list_of_flags_gets_an_item(base: Path) -> None:
    (base / "flags.yaml").write_text("flags:\n  - key: cart\n    state: ENABLED\n    variants: {a: 1}\n")
    assert add(base, "banner") == 0
    assert (base / "flags.yaml").read_text().splitlines()[4].startswith("  - {key: banner, state: ENABLED, ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cart",), "is already defined at base/flags.yaml:2:3"),
        (("banner", "--type", "string"), "needs a --variant"),
        (("banner", "--type", "integer", "--variant", "a=1.5"), "is no JSON of type integer"),
        (("banner", "--default", "onn"), "no variant 'onn'"),
        (("banner", "--expires", "soon"), "is no date"),
        (("banner", "--variant", "on"), "write NAME=VALUE"),
        (("banner", "--file", "top/banner.yaml"), "no file of definitions of base"),
        (("banner", "--file", "base/banner.txt"), "no file of definitions of base"),
        (("banner", "--layer", "top"), "'top' is none of them"),
    ],
)
def test_what_cannot_be_added_is_refused(
    base: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    try:
        code = add(base, *words)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert said in capsys.readouterr().err
    assert {file.name for file in base.iterdir()} == {"flags.yaml", "shared.yaml"}
    assert (base / "flags.yaml").read_text() == BASE


def test_of_several_files_and_layers_one_is_to_be_named(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (base / "more.yaml").write_text("flags:\n  a: {state: ENABLED, variants: {x: 1}, defaultVariant: x}\n")
    assert add(base, "banner") == 2
    assert "choose --file base/flags.yaml or --file base/more.yaml" in capsys.readouterr().err
    assert add(base, "banner", "--path", "base/more.yaml") == 2
    assert "choose --layer base/more.yaml or --layer base" in capsys.readouterr().err
