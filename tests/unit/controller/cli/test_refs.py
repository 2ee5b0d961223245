"""`flagstaff refs` over a repository with flags and code."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from controller.cli import main
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
FLAGS = json.dumps({"flags": {"new-cart": FLAG, "old-banner": FLAG}})


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository whose newest commit no longer refers to `old-banner`; the current folder."""
    repository = Repository(tmp_path / "shop")
    repository.write("src/banner.py", 'show("old-banner")\n')
    repository.commit("use the banner", flags__json=FLAGS)
    (repository.path / "src" / "banner.py").unlink()
    repository.write("src/cart.py", 'client.get_boolean_value("new-cart", False)\n')
    repository.commit("Remove the banner")
    monkeypatch.chdir(repository.path)
    return repository


def test_flags_are_listed_with_their_places_and_those_without_one(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["refs", "src", "--lookback", "5"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    commit = repository.git("rev-parse", "HEAD")
    day = datetime.fromtimestamp(int(repository.git("log", "-1", "--format=%ct")), UTC).date().isoformat()
    assert lines == [
        "new-cart: 1 reference",
        '  cart.py:1: client.get_boolean_value("new-cart", False)',
        f"old-banner: no reference; the last one was removed by {commit[:12]} on {day}, "
        "Ada <ada@example.com>: Remove the banner",
    ]
    assert last == "1 reference to 1 flag in 1 file, 1 flag without one, 0 calls without a flag"


def test_a_pull_request_that_uses_a_flag_without_a_definition_fails(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.write(
        "src/cart.py",
        'client.get_boolean_value("new-cart", False)\nclient.get_string_value("new-text", "")\n',
    )
    assert main(["refs", "src", "--since", "HEAD"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        'cart.py:2: the flag \'new-text\' is not defined: client.get_string_value("new-text", "")',
        "0 references to 0 flags in 1 file, 1 call without a flag",
    ]
    assert main(["refs", "src", "--since", "HEAD", "-o", "markdown"]) == 1
    assert capsys.readouterr().out == "- :x: `cart.py:2` uses `new-text`, which is not defined\n"


def test_programs_get_all_of_it(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    del repository
    assert main(["refs", "src", "--lookback", "5", "-o", "json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["flags"]["new-cart"]["references"][0]["file"] == "cart.py"
    assert content["flags"]["old-banner"]["references"] == []
    assert content["flags"]["old-banner"]["removed"]["subject"] == "Remove the banner"
    assert main(["refs", "src", "-o", "csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(row["flag"], row["line"]) for row in rows] == [("new-cart", "1"), ("old-banner", "")]
    assert main(["refs", "src", "-o", "markdown"]) == 0
    assert "| `new-cart` | 1 | `cart.py:1` |" in capsys.readouterr().out


def test_forms_of_keys_are_asked_for(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    repository.write("src/banner.js", "if (oldBanner) {}\n")
    assert main(["refs", "src", "--form", "camel"]) == 0
    assert "old-banner: 1 reference" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["nowhere"], ["src", "--since", "nothing"]])
def test_what_cannot_be_searched_is_refused(words: list[str], repository: Repository) -> None:
    del repository
    assert main(["refs", *words]) == 3


def test_a_number_of_commits_is_one() -> None:
    with pytest.raises(SystemExit):
        main(["refs", ".", "--lookback", "many"])
