"""`flagstaff plan`: what a change does to users, in each form, and comments within limits."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs
import pytest

from controller.authoring.plan_words import FORGES, marker
from controller.authoring.plans import FlagPlan
from controller.cli import main
from controller.cli.change_plan import ChangePlan, as_markdown, as_text
from controller.cli.diff import DeliveredSide
from tests.repositories import Repository
from tests.unit.controller.cli.test_archive import prometheus
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from pathlib import Path

    from evaluator.flags.model import FlagSet

GOLD: Final = {"==": [{"var": "tier"}, "gold"]}


def flags(**rules: Any) -> str:
    variants = {"on": True, "off": False}
    return json.dumps(
        {
            "flags": {
                key: {
                    "state": "ENABLED",
                    "variants": variants,
                    "defaultVariant": "off",
                    "targeting": rule or {},
                }
                for key, rule in rules.items()
            }
        }
    )


def split(on: int) -> dict[str, Any]:
    return {"fractional": [["on", on], ["off", 100 - on]]}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "flags")
    made.commit("first", flags__json=flags(cart={"if": [GOLD, "on", split(10)]}, gone=split(50), same=None))
    made.commit("second", flags__json=flags(cart={"if": [GOLD, "off", split(25)]}, same=None, new=None))
    return made


def plan(repository: Repository, *words: str) -> int:
    return main(["plan", "--source", str(repository.path), "HEAD~1..HEAD", *words])


def test_change_is_told_flag_by_flag_with_who_and_how_many(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(repository) == 1
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.endswith(": 3 flags differ; 2 of them give up to 100 % of users another value")
    cart = lines[lines.index("    15 % to 100 % of users get another value (exact, by arithmetic)") :]
    assert cart[1:3] == [
        "    100 % of users where tier is gold: on → off",
        "    15 % of users where tier is not gold: off → on",
    ]
    gone = lines[lines.index("- gone: removed") :]
    assert gone[1] == (
        "    100 % of users get another value (exact, by arithmetic): "
        "off → the default of the code 50 %, on → the default of the code 50 %"
    )
    assert "+ new: added, default off (false)" in lines


def test_json_has_the_same_and_the_schema_that_is_published(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(repository, "-o", "json") == 1
    printed = json.loads(capsys.readouterr().out)
    assert [flag["key"] for flag in printed["flags"]] == ["cart", "gone", "new"]
    assert [branch["who"] for branch in printed["flags"][0]["branches"]] == [
        "tier is gold",
        "tier is not gold",
    ]
    assert main(["schema", "output-plan"]) == 0
    validator = jsonschema_rs.validator_for(json.loads(capsys.readouterr().out))
    assert validator.is_valid(printed)


def test_findings_are_at_the_definitions(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(repository, "-o", "sarif") == 1
    found = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert [result["level"] for result in found] == ["note"] * 3
    place = found[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "flags.json"
    assert "100 % of users where tier is gold" in found[0]["message"]["text"]


def test_markdown_is_empty_where_nothing_changes(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--source", str(repository.path), "HEAD..HEAD", "-o", "markdown"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ([], "flags"),
        (["--path", "flags.json"], "flags.json"),
        (["--name", "shop/production"], "shop/production"),
        (["--name", "a) <b>\n"], "ab"),
    ],
)
def test_comment_begins_with_the_line_that_finds_it_again(
    words: list[str], name: str, repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(repository, "-o", "markdown", *words) == 1
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == f"[//]: # (flagstaff plan {name})"


def many(count: int) -> ChangePlan:
    planned = tuple(
        FlagPlan(f"f{number:05}", "Changed", "x" * 100, "Arithmetic", 0.0, float(number % 100))
        for number in range(count)
    )
    return ChangePlan("a", "b", 10_000, planned)


@pytest.mark.parametrize("limit", [1_000, *FORGES.values()])
def test_comment_keeps_within_its_limit_and_says_how_many_flags_are_left_out(limit: int) -> None:
    text = as_markdown(many(9_000), "flags", limit)
    assert limit * 0.7 < len(text.encode()) <= limit
    shown = text.count("\n! f")
    assert text.endswith(f"… and {9_000 - shown} more flags; `flagstaff plan` prints all\n")
    assert "! f00099: " in text


def test_comment_with_too_many_problems_says_so() -> None:
    text = as_markdown(replace(many(1), problems=("bad " * 1_000,)), "flags", 1_000)
    assert text.startswith(marker("flags"))
    assert text.endswith("It is too long for a comment; `flagstaff plan` prints it.\n")


def test_no_text_of_a_definition_is_taken_for_markup() -> None:
    flag = FlagPlan("f", "Changed", "```\n<img> @all", "Arithmetic", 0.0, 1.0)
    text = as_markdown(ChangePlan("a", "b", 1, (flag,)), "flags", 1_000)
    assert text.count("```") == 2


def test_needless_moves_rollouts_overrides_and_code_have_a_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Repository(tmp_path / "flags")
    made.commit("first", flags__json=flags(cart={"fractional": [["on", 10], ["off", 90]]}))
    made.write("flags.json", flags(cart={"fractional": [["off", 80], ["on", 20]]}))
    code = tmp_path / "code"
    code.mkdir()
    (code / "shop.py").write_text('client.get_boolean_value("cart", False)\n')
    assert main(["plan", "--source", str(made.path), "--code", str(code)]) == 1
    text = capsys.readouterr().out
    assert "    30 % of users get another value (exact, by arithmetic): " in text
    assert "    20 % move needlessly, as the shares need only 10 % to: keep variants in their order" in text
    assert "    the code refers to it 1 time\n" in text
    flag = FlagPlan("f", "Changed", "x", rollout="slow", override="incident", references=0)
    lines = [*as_text(ChangePlan("a", "b", 1, (flag,)))]
    assert lines[2:] == [
        "    FlagRollout slow serves this in steps",
        "    FlagOverride incident decides now what users get, until it ends",
        "    no code refers to it",
    ]


def test_plan_says_who_asks_for_each_flag_that_changes(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    with prometheus({"namespace": "shop", "job": "web", "feature_flag_key": "gone"}, 1204) as url:
        assert plan(repository, "--prometheus", url, "--requests-in", "7d") == 1
        text = capsys.readouterr().out
        assert plan(repository, "--prometheus", url, "-o", "json") == 1
    assert "requested 1,204 times in 7 days by shop/web\n" in text.partition("- gone")[2]
    assert "nobody asked for it in 7 days\n" in text.partition("~ cart")[2]
    told = {flag["key"]: flag["requests"] for flag in json.loads(capsys.readouterr().out)["flags"]}
    assert told["gone"] == "requested 1,204 times in 30 days by shop/web"
    assert plan(repository, "--prometheus", "http://127.0.0.1:1") == 3
    assert "127.0.0.1:1 cannot be asked" in capsys.readouterr().err


TESTS: Final = """
tests:
  - {name: gold keeps it, flag: cart, context: {tier: gold}, expect: {variant: "on"}}
  - {name: others in parts, flag: cart, context: {tier: basic}, at: 20, expect: {variant: "on"}}
  - {name: it stays, flag: gone, expect: {variant: "on"}, at: 1}
"""


def test_plan_says_which_tests_cover_each_flag_and_which_would_fail(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.commit("tests", **{"flags.flagtest__yaml": TESTS})
    command = ["plan", "--source", str(repository.path), "HEAD~2..HEAD"]
    assert main(command) == 1
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.endswith("another value; 2 tests fail")
    assert "    covered by 2 tests" in lines
    assert (
        '    the test "gold keeps it" fails: expected variant "on"; came variant "off", value false, '
        "reason TARGETING_MATCH" in lines
    )
    assert lines[lines.index("- gone: removed") + 3].startswith('    the test "it stays" fails: ')
    assert lines[-1] == "    no test covers it"
    assert main([*command, "-o", "json"]) == 1
    first = json.loads(capsys.readouterr().out)["flags"][0]["tests"]
    assert first["count"] == 2
    assert first["untested"] == []


def test_plan_names_the_branches_that_change_and_that_no_test_reaches(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = "tests: [{name: gold, flag: cart, context: {tier: gold}, expect: {value: false}}]"
    repository.commit("tests", **{"flags.flagtest__yaml": tests})
    assert main(["plan", "--source", str(repository.path), "HEAD~2..HEAD"]) == 1
    text = capsys.readouterr().out
    assert "    covered by 1 test; none reaches 1 branch that changes: targeting.if[2]\n" in text
    assert "fails" not in text


def test_given_contexts_are_said_to_be_counted(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "contexts.jsonl"
    tiers = ["gold", "basic", "basic", "basic"]
    file.write_text(
        "".join(f'{{"targetingKey": "u{n}", "tier": "{tier}"}}\n' for n, tier in enumerate(tiers))
    )
    assert plan(repository, "--contexts", str(file)) == 1
    assert "of the 4 given contexts get another value" in capsys.readouterr().out


def test_steps_of_a_rollout_are_planned_as_rollout_plan_does(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rollout.yaml"
    spec = {"flagSetRef": {"name": "production"}, "flags": ["*"], "steps": [{"share": 10}]}
    kind = {"apiVersion": "flagstaff.dev/v1alpha1", "kind": "FlagRollout", "metadata": {"name": "slow"}}
    file.write_text(json.dumps({**kind, "spec": spec}))
    assert plan(repository, "--rollout", str(file)) == 1
    text = capsys.readouterr().out
    assert "FlagRollout slow: " in text
    assert "promotion" in text


def test_calendar_has_schedules_of_changed_flags_and_dates_of_steps(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    christmas = {"between": ["2499-12-24T18:00", "2499-12-27T06:00", "Europe/Berlin"]}
    schedule = {"if": [{"and": [christmas, GOLD]}, "on"]}
    repository.commit("third", flags__json=flags(cart=schedule, same=None))
    file = tmp_path / "rollout.yaml"
    steps = [{"share": 10, "at": "2499-12-01T08:00:00+01:00"}, {"share": 50, "at": "2499-12-26T08:00:00Z"}]
    spec = {"flagSetRef": {"name": "production"}, "flags": ["*"], "steps": steps}
    kind = {"apiVersion": "flagstaff.dev/v1alpha1", "kind": "FlagRollout", "metadata": {"name": "slow"}}
    file.write_text(json.dumps({**kind, "spec": spec}))
    lines = [
        "from 2499-12-01 08:00+01:00 on: FlagRollout slow, step 1/2: the new definition for 10% of users",
        "from 2499-12-24 18:00 to 2499-12-27 06:00 Europe/Berlin: cart, for users whose tier is gold: on",
        "from 2499-12-26 08:00+00:00 on: FlagRollout slow, step 2/2: the new definition for 50% of users",
    ]
    assert plan(repository, "--rollout", str(file)) == 1
    text = capsys.readouterr().out
    assert "\n    ".join(["Calendar:", *lines]) in text
    assert plan(repository, "--rollout", str(file), "-o", "markdown") == 1
    assert "\n".join(["Calendar:", "", "```text", *lines, "```"]) in capsys.readouterr().out
    assert plan(repository, "--rollout", str(file), "-o", "json") == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["calendar"][1] == {
        "name": "cart",
        "when": "from 2499-12-24 18:00 to 2499-12-27 06:00 Europe/Berlin",
        "who": "for users whose tier is gold",
        "gives": "on",
        "start": "2499-12-24T17:00:00Z",
        "end": "2499-12-27T05:00:00Z",
    }
    assert main(["schema", "output-plan"]) == 0
    assert jsonschema_rs.validator_for(json.loads(capsys.readouterr().out)).is_valid(printed)


@pytest.mark.parametrize(("range_", "code"), [("HEAD..HEAD", 0), ("HEAD~1..HEAD", 2), ("nowhere..HEAD", 1)])
def test_detailed_exit_codes_are_those_of_diff(repository: Repository, range_: str, code: int) -> None:
    assert main(["plan", "--source", str(repository.path), "--detailed-exitcode", range_]) == code


def test_limit_is_a_number_or_a_code_host(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        plan(repository, "--limit", "9")
    assert "'9' is no limit; write at least 1000 bytes, or github, gitlab" in capsys.readouterr().err


def test_bad_definition_stays_as_it_was_and_is_reported(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.write("flags.json", flags(cart={"if": [GOLD, "maybe", "on"]}, same=None, new=None))
    assert main(["plan", "--source", str(repository.path)]) == 1
    printed = capsys.readouterr()
    assert "no flag differs" in printed.out
    assert "maybe" in printed.err


def test_change_is_compared_with_a_cluster_with_its_rollout_and_override(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from controller.cli import diff
    from controller.cli import plan as verb

    about = {"flagSetRef": {"name": "production"}}
    override = thing(
        "FlagOverride",
        "incident",
        {**about, "flag": "cart", "variant": "off", "reason": "down", "expiresAt": "2999-01-01T00:00:00Z"},
    )
    rollout = thing("FlagRollout", "slow", {**about, "flags": ["*"], "steps": [{"share": 10}]})
    flag_set = thing("FlagSet", "production", {"sourceRef": {"kind": "FlagSource", "name": "x"}})
    side = DeliveredSide(flag_set, compose_first(repository), [rollout], [override])
    monkeypatch.setattr(diff, "run_on_cluster", lambda *_, **__: side)
    monkeypatch.setattr(verb, "run_on_cluster", lambda *_, **__: {"slow": side})
    command = ["plan", "--source", str(repository.path), "--against-cluster", "production"]
    assert main(command) == 1
    text = capsys.readouterr().out
    assert text.startswith("FlagSet/production → working tree: ")
    assert "    FlagRollout slow serves this in steps\n" in text
    assert "    FlagOverride incident decides now what users get, until it ends\n" in text
    assert "\nFlagRollout slow: " in text


def compose_first(repository: Repository) -> FlagSet:
    from evaluator.flags.merge import parse

    return parse(repository.git("show", "HEAD~1:flags.json").encode(), file="flags.json").flag_set


SMALL_STEPS: Final = """
name: small-steps
action: ACTION
validations:
  - expression: plan.most <= 10 || plan.rollout != ""
    message: write a FlagRollout for more than 10 % of users
"""


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "steps.yaml").write_text(SMALL_STEPS.replace("ACTION", "Deny"))
    return folder


def test_policy_that_the_change_does_not_meet_is_a_problem(
    repository: Repository, policies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--detailed-exitcode", "--policies", str(policies))
    assert plan(repository, *words) == 1
    unmet = 'flags.json:1:0: error: policy small-steps (Deny): flag "cart": write a FlagRollout'
    assert unmet in capsys.readouterr().err
    assert plan(repository, *words, "-o", "markdown") == 1
    assert unmet in capsys.readouterr().out
    assert plan(repository, *words, "-o", "sarif") == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert [result["ruleId"] for result in run["results"]].count("policy-unmet") == 2


def test_policy_that_warns_passes_where_the_author_is_lenient(repository: Repository, policies: Path) -> None:
    (policies / "steps.yaml").write_text(SMALL_STEPS.replace("ACTION", "Warn"))
    words = ("--detailed-exitcode", "--policies", str(policies))
    assert plan(repository, *words) == 1
    assert plan(repository, *words, "--lenient") == 2


def test_policy_sees_who_wrote_the_commit(
    repository: Repository, policies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (policies / "steps.yaml").write_text(
        "name: who\naction: Warn\nvalidations: [{expression: 'false', messageExpression: author}]"
    )
    plan(repository, "--policies", str(policies))
    assert '(Warn): flag "cart": Ada' in capsys.readouterr().err


def test_folder_without_policies_is_wrong_usage(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert plan(repository, "--policies", str(tmp_path / "empty")) == 2
    assert plan(repository, "--policies", str(tmp_path / "nowhere")) == 2
