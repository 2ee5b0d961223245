"""`flagstaff diff`: commits, and the files on disk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from controller.cli import main
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path


def flag(default: str) -> dict[str, object]:
    return {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": default}


def flags(**defaults: str) -> str:
    return json.dumps({"flags": {key: flag(default) for key, default in defaults.items()}})


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "flags")
    made.commit("first", flags__json=flags(banner="off", old="on"))
    made.commit("second", flags__json=flags(banner="on", snow="on"))
    return made


def diff(repository: Repository, *words: str) -> int:
    return main(["diff", "--source", str(repository.path), *words])


def test_two_commits_are_compared_flag_by_flag(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diff(repository, "HEAD~1..HEAD") == 1
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.endswith(": 3 flags differ: 1 added, 1 changed, 1 removed")
    assert lines == ["~ banner: default off (false) → on (true)", "- old", "+ snow: on (true)"]


def test_files_on_disk_are_compared_with_the_newest_commit(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diff(repository) == 0
    assert capsys.readouterr().out.endswith("→ working tree: no flag differs\n")
    repository.write("flags.json", flags(banner="on", snow="off"))
    assert diff(repository, "-o", "json") == 1
    changes = json.loads(capsys.readouterr().out)
    commit = repository.git("rev-parse", "HEAD")
    assert changes == {
        "before": f"sha1:{commit}",
        "after": "working tree",
        "added": [],
        "changed": {"snow": ["defaultVariant"]},
        "removed": [],
        "lines": ["~ snow: default on (true) → off (false)"],
        "rules": {},
        "problems": [],
        "inSteps": {},
    }


def test_every_changed_place_of_rules_is_shown_whatever_is_printed(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = {
        share: {
            "if": [
                {"in": [f"@example.{domain}", {"var": "email"}]},
                "on",
                {"or": [{"==": [{"var": f"attribute{number}"}, share + number]} for number in range(50)]},
            ]
        }
        for share, domain in ((100, "com"), (200, "org"))
    }
    for share, rule in rules.items():
        content = {"flags": {"banner": {**flag("off"), "targeting": rule}}}
        repository.commit(f"share {share}", flags__json=json.dumps(content))
    assert diff(repository, "HEAD~1..HEAD") == 1
    text = capsys.readouterr().out
    assert diff(repository, "HEAD~1..HEAD", "-o", "markdown") == 1
    markdown = capsys.readouterr().out
    for printed in (text, markdown):
        shown = " ".join(printed.split())
        assert 'targeting at 51 places: $.if[0].in[0]: "@example.com" → "@example.org"' in shown
        assert '$.if[2].or[49]["=="][1]: 149 → 249' in shown
    assert diff(repository, "HEAD~1..HEAD", "-o", "json") == 1
    printed = json.loads(capsys.readouterr().out)["rules"]
    assert printed == {"banner": {"before": rules[100], "after": rules[200]}}


def test_bad_flag_stays_as_it_was_and_is_reported(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.write("flags.json", flags(banner="onn", snow="on"))
    assert diff(repository) == 1
    out, err = capsys.readouterr()
    assert "no flag differs" in out
    assert err.startswith("flags.json:1:")
    assert '`variants` has no "onn"' in err


def test_markdown_is_a_code_block_that_definitions_cannot_leave(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.write("flags.json", json.dumps({"flags": {"banner": flag("on"), "snow```": flag("on")}}))
    assert diff(repository, "-o", "markdown") == 1
    text = capsys.readouterr().out
    assert text.startswith("**Flags**: 2 flags differ: 1 added, 1 removed (`sha1:")
    assert text.count("```") == 2
    assert "\n- snow\n" in text


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nothing..HEAD"], 3, "has no commit 'nothing'; a shallow clone has only its newest commits"),
        (["a..b", "--against-cluster", "flags"], 2, "--against-cluster compares one side"),
    ],
)
def test_side_that_cannot_be_read_is_named(
    words: list[str], code: int, message: str, repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diff(repository, *words) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [(("HEAD..HEAD",), 0), (("HEAD~1..HEAD",), 2), (("main..gone",), 1), (("--path", "gone"), 1)],
)
def test_detailed_exit_code_is_0_without_and_2_with_differences_and_1_for_an_error(
    words: tuple[str, ...], code: int, repository: Repository
) -> None:
    assert diff(repository, "--detailed-exitcode", *words) == code


def test_detailed_exit_code_is_1_where_a_definition_is_bad_and_where_an_option_is(
    repository: Repository,
) -> None:
    repository.write("flags.json", json.dumps({"flags": {"banner": {"state": "MAYBE"}}}))
    assert diff(repository, "--detailed-exitcode") == 1
    with pytest.raises(SystemExit) as ended:
        diff(repository, "--detailed-exitcode", "--gone")
    assert ended.value.code == 1
