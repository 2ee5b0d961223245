"""`flagstaff import`: what it writes, what it refuses, who moves, and the comparison with the old system."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from controller.cli import main
from evaluator.flags.document import read_document

if TYPE_CHECKING:
    from pathlib import Path

CHECKOUT = {
    "key": "new-checkout",
    "variations": [{"value": True}, {"value": False}],
    "temporary": False,
    "_maintainer": {"email": "ann@example.org"},
    "environments": {
        "production": {
            "on": True,
            "offVariation": 1,
            "rules": [{"variation": 0, "clauses": [{"attribute": "plan", "op": "in", "values": ["gold"]}]}],
            "fallthrough": {"rollout": {"variations": [
                {"variation": 0, "weight": 10_000}, {"variation": 1, "weight": 90_000}]}},
        },
        "test": {"on": True, "offVariation": 1, "fallthrough": {"variation": 0}},
    },
}  # fmt: skip
BY_PATTERN = {
    "key": "by-pattern",
    "variations": ["a", "b"],
    "on": True,
    "offVariation": 0,
    "rules": [{"variation": 1, "clauses": [{"attribute": "plan", "op": "matches", "values": ["^g"]}]}],
    "fallthrough": {"variation": 0},
}
BANNER = {"key": "banner", "variations": ["a", "b"], "on": True, "fallthrough": {"variation": 0}, "targets": [
    {"variation": 1, "values": ["ann"]}]}  # fmt: skip


def written(tmp_path: Path, content: Any, *options: str) -> tuple[int, Path]:
    """Import one file; the exit code and the folder of definitions."""
    file = tmp_path / "flags.json"
    file.write_text(json.dumps(content))
    return main(
        ["import", "launchdarkly", str(file), "--out", str(tmp_path / "out"), *options]
    ), tmp_path / "out"


def definition(file: Path) -> Any:
    return read_document(file.read_bytes(), file=file.name).value


def test_environments_become_a_base_and_overlays(tmp_path: Path) -> None:
    code, out = written(tmp_path, {"items": [CHECKOUT]})
    assert code == 0
    assert definition(out / "base/flags.yaml")["flags"]["new-checkout"] == {
        "state": "ENABLED",
        "variants": {"on": True, "off": False},
        "metadata": {"owner": "ann@example.org", "permanent": True},
    }
    assert definition(out / "overlays/test/flags.yaml")["flags"] == {"new-checkout": {"defaultVariant": "on"}}
    layers = [f"--path={out / 'base'}", f"--path={out / 'overlays/production'}"]
    assert main(["lint", *layers]) == 0


def test_many_flags_are_divided_into_files_that_lint_reads(tmp_path: Path) -> None:
    flags = {f"banner-{number}": {**BANNER, "key": f"banner-{number}"} for number in range(1_100)}
    code, out = written(tmp_path, {"flags": flags})
    assert code == 0
    assert [file.name for file in sorted(out.iterdir())] == [
        "flags-01.yaml",
        "flags-02.yaml",
        "flags-03.yaml",
    ]
    assert main(["lint", "--path", str(out)]) == 0


def test_large_files_are_json_with_a_line_for_each_flag(tmp_path: Path) -> None:
    targets = [{"variation": 1, "values": [f"user-{number:09}" for number in range(4_000)]}]
    flags = {
        f"banner-{number}": {**BANNER, "key": f"banner-{number}", "targets": targets} for number in range(30)
    }
    code, out = written(tmp_path, {"flags": flags})
    assert code == 0
    lines = (out / "flags.json").read_text().splitlines()
    assert sum(line.startswith('"banner-') for line in lines) == 30
    assert main(["lint", "--path", str(out)]) == 0


def test_one_environment_is_taken_alone(tmp_path: Path) -> None:
    file = tmp_path / "flags.json"
    file.write_text(json.dumps({"items": [CHECKOUT]}))
    out = tmp_path / "out"
    assert main(["import", "launchdarkly", f"test={file}", "--out", str(out)]) == 0
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*.yaml")) == [
        "base/flags.yaml", "overlays/test/flags.yaml"
    ]  # fmt: skip


def test_a_refused_flag_is_named_with_its_place_and_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = written(tmp_path, {"flags": {"by-pattern": BY_PATTERN, "banner": BANNER}})
    assert code == 1
    assert list(definition(out / "flags.yaml")["flags"]) == ["banner"]
    printed = capsys.readouterr().out
    assert (
        'flags.by-pattern.rules[0].clauses[0]: the flag "by-pattern" is refused: a clause matches' in printed
    )
    assert "1 flag imported, 1 refused" in printed


def test_an_approximation_is_offered_and_is_written_into_the_metadata(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dated = {**BANNER, "rules": [{"variation": 1, "clauses": [
        {"attribute": "born", "op": "before", "values": [10]}]}]}  # fmt: skip
    assert written(tmp_path, {"flags": {"banner": dated}})[0] == 1
    assert (
        "--allow numeric-dates imports it: dates in contexts count only as numbers" in capsys.readouterr().out
    )
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    code, out = written(tmp_path, {"flags": {"banner": dated}}, "--allow", "numeric-dates")
    assert code == 0
    assert definition(out / "flags.yaml")["flags"]["banner"]["metadata"] == {"importedWith": "numeric-dates"}


def test_who_moves_is_said_for_both_ways_of_the_cut_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out = written(tmp_path, {"items": [CHECKOUT]})
    assert "new-checkout  production  at most 18 % of users" in capsys.readouterr().out
    targeting = definition(out / "overlays/production/flags.yaml")["flags"]["new-checkout"]["targeting"]
    assert targeting["if"][-1] == {"fractional": [["on", 1], ["off", 9]]}
    shutil.rmtree(out)
    written(tmp_path, {"items": [CHECKOUT]}, "--freeze", "majority")
    assert "new-checkout  production  at most 10 % of users" in capsys.readouterr().out
    targeting = definition(out / "overlays/production/flags.yaml")["flags"]["new-checkout"]["targeting"]
    assert "fractional" not in json.dumps(targeting)


@pytest.mark.parametrize("name", ["../../elsewhere", "/tmp/elsewhere", "..", "a/b", "a\nb"])
def test_an_environment_that_is_no_folder_writes_nothing_anywhere(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = {**CHECKOUT, "environments": {name: CHECKOUT["environments"]["test"]}}  # type: ignore[index]
    code, out = written(tmp_path, {"items": [elsewhere]})
    assert (code, out.exists()) == (2, False)
    assert "is no name of a folder" in capsys.readouterr().err


def test_files_that_are_there_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/flags.yaml").write_text("flags: {}\n")
    code, out = written(tmp_path, {"flags": {"banner": BANNER}})
    assert code == 2
    assert (out / "flags.yaml").read_text() == "flags: {}\n"
    assert "is not empty; nothing was written" in capsys.readouterr().err


@pytest.mark.parametrize("content", [[], 3, {"flags": []}, {"items": [{}], "flags": 7}])
def test_a_file_of_another_form_says_so(
    tmp_path: Path, content: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = written(tmp_path, content)
    printed = capsys.readouterr()
    assert code == 2 or "0 flags" in printed.out
    assert code != 2 or "flags.json" in printed.err


def calls(tmp_path: Path, *lines: Any) -> str:
    file = tmp_path / "calls.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(file)


def test_values_of_the_old_system_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = [
        {"flag": "banner", "context": {"targetingKey": "ann"}, "value": "b"},
        {"flag": "banner", "context": {"targetingKey": "bob"}, "value": "a"},
    ]
    assert written(tmp_path, {"flags": {"banner": BANNER}}, "--verify", calls(tmp_path, *old))[0] == 0
    assert "banner: all 2 calls agree" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    wrong = {"flag": "banner", "context": {"targetingKey": "eve"}, "value": "b"}
    assert written(tmp_path, {"flags": {"banner": BANNER}}, "--verify", calls(tmp_path, *old, wrong))[0] == 1
    printed = capsys.readouterr().out
    assert 'banner: 1 of 3 calls differ; {"targetingKey": "eve"} gave "b", and gives "a" here' in printed


def test_flags_that_are_too_many_for_one_file_are_compared(tmp_path: Path) -> None:
    large = {**BANNER, "variations": ["a" * 1_000_000, "b" * 1_000_000]}
    flags = {f"banner-{number}": {**large, "key": f"banner-{number}"} for number in range(9)}
    old = {"flag": "banner-3", "context": {"targetingKey": "bob"}, "value": "a" * 1_000_000}
    assert written(tmp_path, {"flags": flags}, "--verify", calls(tmp_path, old))[0] == 0


def test_users_of_another_bucket_are_no_difference_of_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = [
        {
            "flag": "new-checkout",
            "environment": "production",
            "context": {"targetingKey": f"u{n}"},
            "value": True,
        }
        for n in range(50)
    ]
    assert written(tmp_path, {"items": [CHECKOUT]}, "--verify", calls(tmp_path, *old))[0] == 0
    assert "its users are divided by a hash" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: is no JSON"),
        ('{"flag": "banner"}', "line 1: needs an object with flag, context and value"),
        ('{"flag": 3, "value": 1}', "line 1: flag has another type"),
        ('{"flag": "banner", "environment": "moon", "value": 1}', "has the environment 'moon'"),
    ],
)
def test_a_line_that_is_no_call_names_its_number(
    tmp_path: Path, line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text(line + "\n")
    assert written(tmp_path, {"flags": {"banner": BANNER}}, "--verify", str(file))[0] == 2
    assert message in capsys.readouterr().err


def test_json_has_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, {"flags": {"by-pattern": BY_PATTERN, "banner": BANNER}}, "-o", "json")
    report = json.loads(capsys.readouterr().out)
    assert report["flags"] == 1
    assert [refusal["name"] for refusal in report["refused"]] == ["by-pattern"]
    assert report["files"] == [str(tmp_path / "out/flags.yaml")]
