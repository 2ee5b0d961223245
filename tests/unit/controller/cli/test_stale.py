"""`flagstaff stale` over a repository with a history and code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from controller.cli import main
from tests.repositories import ENVIRONMENT, Repository

if TYPE_CHECKING:
    from pathlib import Path

ON_OFF = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
SPLIT = {"fractional": [["on", 50], ["off", 50]]}
FLAGS: dict[str, Any] = {
    "banner": {**ON_OFF, "metadata": {"owner": "web", "type": "release", "ticket": "WEB-7"}},
    "checkout": {**ON_OFF, "targeting": SPLIT, "metadata": {"expires": "2020-01-31"}},
    "kill-switch": {**ON_OFF, "metadata": {"type": "ops"}},
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Flags of 2020, one of which changed in 2021."""
    repository = Repository(tmp_path / "shop")
    for year, flags in ((2020, FLAGS | {"checkout": FLAGS["checkout"] | {"targeting": {}}}), (2021, FLAGS)):
        monkeypatch.setitem(ENVIRONMENT, "GIT_COMMITTER_DATE", f"{year}-01-01T00:00:00Z")
        repository.commit(f"flags of {year}", flags__json=json.dumps({"flags": flags}))
    repository.write("src/a.py", 'ask("checkout"); ask("kill-switch")\n')
    return repository


def stale(
    repository: Repository, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0
) -> dict[str, list[str]]:
    """The names of facts by flag."""
    assert main(["stale", str(repository.path), "-o", "json", *words]) == code
    listed = json.loads(capsys.readouterr().out)
    return {flag["key"]: [fact["name"] for fact in flag["facts"]] for flag in listed}


def test_history_metadata_and_code_give_separate_facts(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stale(repository, capsys, "--code", str(repository.path / "src")) == {
        "banner": ["old", "unchanged", "constant", "unreferenced"],
        "checkout": ["expired", "old", "unchanged"],
    }


def test_each_limit_has_an_option(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    far = "3650d"
    assert stale(repository, capsys, "--older-than", far, "--constant-for", far)["banner"] == ["unchanged"]
    assert stale(repository, capsys, "--unchanged-for", far, "--constant-for", far)["banner"] == ["old"]


def test_a_fact_fails_a_pipeline_that_asks_for_it(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    stale(repository, capsys, "--fail-on", "expired", code=1)
    stale(repository, capsys, "--fail-on", "unreferenced", code=0)


def test_people_get_a_table(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stale", str(repository.path)]) == 0
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split() == ["FLAG", "OWNER", "TYPE", "TICKET", "FACTS"]
    assert first.split()[:4] == ["banner", "web", "release", "WEB-7"]
    assert first.endswith("; everybody gets off")
    assert "past its date, 2020-01-31; " in second
    assert main(["stale", str(repository.path), "-o", "markdown"]) == 0
    assert "| `banner` | web | WEB-7 | " in capsys.readouterr().out


def test_a_folder_without_a_history_still_has_facts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flags.json").write_text(json.dumps({"flags": FLAGS}), encoding="utf-8")
    assert main(["stale", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "checkout  -      -        -       past its date, 2020-01-31" in shown.out
    assert "has no commits that can be read, so that ages are not known" in shown.err


@pytest.mark.parametrize("words", [["--code", "nowhere"], ["--prometheus", "http://127.0.0.1:1"]])
def test_what_cannot_be_read_is_named(words: list[str], repository: Repository) -> None:
    assert main(["stale", str(repository.path), *words]) == 3
