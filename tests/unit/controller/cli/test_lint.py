"""`flagstaff lint`: what it prints and how it exits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from controller.cli import main
from tests.clients.up import banner

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.json").write_text(banner("plain"))
    (tmp_path / "bad.json").write_text(banner("nobody"))
    (tmp_path / "warned.json").write_text(banner("plain", defaultVarient="x"))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["good.json"], 0),
        (["bad.json"], 1),
        (["warned.json"], 1),
        (["--lenient", "warned.json"], 0),
        (["--lenient", "bad.json"], 1),
        (["good.json", "bad.json"], 1),
        (["."], 1),
        (["nothing.json"], 2),
        ([], 2),
        (["good.json", "--path", "good.json"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
@pytest.mark.usefixtures("folder")
def test_the_exit_code_tells(arguments: list[str], wanted: int) -> None:
    assert main(["lint", *arguments]) == wanted


@pytest.mark.usefixtures("folder")
def test_text_names_file_line_and_column(capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "bad.json"])
    assert capsys.readouterr().out.startswith("bad.json:9:25: error: ")


@pytest.mark.usefixtures("folder")
def test_json_and_sarif_carry_the_same_places(capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "bad.json", "--output", "json"])
    (problem,) = json.loads(capsys.readouterr().out)
    main(["lint", "bad.json", "--output", "sarif"])
    (result,) = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["startColumn"]) == (problem["line"], problem["column"])
    assert result["ruleId"] == problem["code"]


def test_an_overlay_needs_its_base(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overlay = {"flags": {"banner": {"defaultVariant": "nobody"}}}
    (folder / "overlay.json").write_text(json.dumps(overlay))
    assert main(["lint", "--path", "good.json", "--path", "overlay.json"]) == 1
    assert capsys.readouterr().out.startswith("overlay.json:1:")
