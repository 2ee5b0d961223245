"""`flagstaff eval`: one answer, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controller.cli import main
from tests.clients.up import banner
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLE = Path(__file__).parents[4] / "examples" / "gitops-repo" / "flags"
LAYERS = ("--path", "base", "--path", "overlays/production")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    made = Repository(tmp_path_factory.mktemp("example"))
    for file in EXAMPLE.rglob("*.yaml"):
        made.write(str(file.relative_to(EXAMPLE)), file.read_text(encoding="utf-8"))
    made.commit("example")
    return made


@pytest.fixture
def ask(repository: Repository, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def answer(*arguments: str) -> tuple[int, Any, str]:
        code = main(["eval", str(repository.path), *arguments[:1], *LAYERS, *arguments[1:]])
        out = capsys.readouterr().out
        value, end = json.JSONDecoder().raw_decode(out) if out else (None, 0)
        return code, value, out[end:]

    return answer


@pytest.mark.parametrize(
    ("arguments", "value", "reason"),
    [
        (("banner-text",), "Welcome", "STATIC"),
        (("max-items", "--context", "tier=gold"), 100, "TARGETING_MATCH"),
        (("max-items", "--context", "tier=none"), 10, "DEFAULT"),
        (("new-checkout", "--context", "email=a@example.com"), True, "TARGETING_MATCH"),
        (("discount-rate", "--context", "appVersion=2.10.0"), 0.05, "TARGETING_MATCH"),
    ],
    ids=str,
)
def test_an_answer(ask: Callable[..., Any], arguments: tuple[str, ...], value: object, reason: str) -> None:
    code, answer, _ = ask(*arguments)
    assert (code, answer["value"], answer["reason"]) == (0, value, reason)


def test_a_flag_that_is_held_back_is_not_said_to_be_absent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on", "targetting": {}}
    (tmp_path / "flags.json").write_text(json.dumps({"flags": {"dark": flag}}))
    assert main(["eval", str(tmp_path), "dark"]) == 1
    error = capsys.readouterr().err
    assert 'unknown field "targetting"' in error
    assert "the flag 'dark' is not served; correct what is said of it above" in error


def test_unknown_flag_exits_1_and_suggests_the_key_that_is_spelled_alike(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["eval", str(EXAMPLE / "base"), "max-item"]) == 1
    output = capsys.readouterr()
    assert json.loads(output.out)["errorCode"] == "FLAG_NOT_FOUND"
    assert "there is no flag 'max-item'; did you mean 'max-items'?" in output.err


def test_one_file_is_evaluated_and_its_steps_are_part_of_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLE / "base" / "checkout.yaml")
    assert main(["eval", file, "max-items", "--explain", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["value"], answer["steps"] != []) == (10, True)


def test_explain_shows_the_bucket(ask: Callable[..., Any]) -> None:
    _, answer, trace = ask("new-checkout", "--context", "targetingKey=user-1", "--explain")
    assert answer["reason"] == "TARGETING_MATCH"
    assert "fractional" in trace
    assert "100" in trace


def test_a_context_that_is_no_pair_exits_2(ask: Callable[..., Any]) -> None:
    assert ask("banner-text", "--context", "nothing")[0] == 2


def test_no_source_exits_3(tmp_path: Path) -> None:
    assert main(["eval", str(tmp_path / "nowhere"), "banner-text"]) == 3


@pytest.fixture
def edited(tmp_path: Path) -> Repository:
    """A repository whose working tree says more than its last commit."""
    made = Repository(tmp_path / "edited")
    made.commit("first", flags__json=banner("plain"))
    made.write("flags.json", banner("party"))
    return made


def test_the_working_tree_is_read_unless_a_reference_is_given(
    edited: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(edited.path), "banner"]) == 0
    assert json.loads(capsys.readouterr().out)["value"] == "Hooray"
    for reference in ("main", "HEAD"):
        assert main(["eval", str(edited.path), "banner", "--ref", reference]) == 0
        printed = capsys.readouterr()
        assert json.loads(printed.out)["value"] == "Welcome"
        assert printed.err.startswith("flagstaff eval: reading main@sha1:")


def test_a_folder_without_git_and_a_bare_repository_are_read(
    edited: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare.git"
    edited.git("clone", "-q", "--bare", ".", str(bare))
    (edited.path / ".git").rename(tmp_path / "away")
    for folder, value in ((edited.path, "Hooray"), (bare, "Welcome")):
        assert main(["eval", str(folder), "banner"]) == 0
        assert json.loads(capsys.readouterr().out)["value"] == value


def test_a_symlink_of_the_working_tree_is_refused_as_in_a_commit(
    edited: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    (edited.path / "link.json").symlink_to("flags.json")
    assert main(["eval", str(edited.path), "banner"]) == 1
    assert (
        "link.json: error: symlink, not followed; replace it with a regular file" in capsys.readouterr().err
    )


def test_a_file_of_the_working_tree_that_is_too_large_is_refused_as_in_a_commit(
    edited: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    with (edited.path / "huge.json").open("wb") as file:
        file.truncate(17 * 1024**2)
    assert main(["eval", str(edited.path), "banner"]) == 1
    assert "huge.json: error: too large, 17825792 bytes of 16777216" in capsys.readouterr().err


def test_a_folder_with_layers_says_which_to_pass(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(repository.path), "banner-text"]) == 1
    assert "such as: --path base --path overlays/production" in capsys.readouterr().err


def test_variables_are_replaced_in_files_and_commits_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = {"state": "ENABLED", "variants": {"on": "${COLOUR}", "off": "grey"}, "defaultVariant": "on"}
    repository = Repository(tmp_path)
    repository.write("flags.json", json.dumps({"flags": {"a": flag}}))
    repository.commit("a variable")
    for reference in ((), ("--ref", "HEAD")):
        options = [str(repository.path), "a", *reference, "--path", "flags.json"]
        assert main(["eval", *options, "--substitute", "COLOUR=red"]) == 0
        assert json.loads(capsys.readouterr().out)["value"] == "red"
        assert main(["eval", *options, "--substitute", "SIZE=big"]) == 1
        assert "the variable COLOUR has no value" in capsys.readouterr().err
        assert main(["eval", *options]) == 0
        assert json.loads(capsys.readouterr().out)["value"] == "${COLOUR}"


def test_a_reference_that_is_not_there_is_reported_once(
    repository: Repository, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(repository.path), "max-items", "--ref", "refs/heads/mian"]) == 3
    assert capfd.readouterr().err == "flagstaff eval: no branch 'mian'; did you mean 'main'? branches: main\n"
