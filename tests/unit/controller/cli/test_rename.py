"""`flagstaff rename`: a flag gets another key everywhere, and users stay in their buckets if asked to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.authoring.renames import with_key
from controller.cli import main
from evaluator.flags.model import Bucketing
from evaluator.targeting import compile_rule

if TYPE_CHECKING:
    from pathlib import Path

BASE = """\
flags:
  cart:   # the new one
    state: ENABLED
    variants: {on: true, off: false}
    defaultVariant: off
    targeting: {fractional: [[on, 10], [off, 90]]}
  pay:
    state: ENABLED
    variants: {on: true, off: false}
    defaultVariant: off
    targeting: {if: [{flag: [cart, on]}, on]}
"""
TOP = "flags:\n  cart:\n    defaultVariant: on\n"
TEST = """\
tests:
  - {name: first, flag: cart, matrix: {t: [a, b]}, context: {x: "${t}"}, at: 1, expect: {variant: on}}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in (("base/flags.yaml", BASE), ("top/flags.yaml", TOP), ("base/cart.flagtest.yaml", TEST)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def rename(tree: Path, *words: str) -> int:
    return main(["rename", *words, "--source", str(tree), "--path", "base", "--path", "top"])


def test_a_key_changes_in_all_layers_rules_and_tests_and_nothing_else(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rename(tree, "cart", "basket") == 0
    new = BASE.replace("  cart: ", "  basket: ").replace("flag: [cart, on]", "flag: [basket, on]")
    assert (tree / "base/flags.yaml").read_text() == new
    assert (tree / "top/flags.yaml").read_text() == TOP.replace("cart", "basket")
    assert (tree / "base/cart.flagtest.yaml").read_text() == TEST.replace("flag: cart", "flag: basket")
    assert main(["test", str(tree / "base")]) == 0
    printed = capsys.readouterr()
    assert "18 % of users get another value" in printed.out
    assert "whether code refers to the flag is unknown" in printed.err


def test_users_stay_in_their_buckets_where_the_old_key_is_hashed(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rename(tree, "cart", "basket", "--keep-buckets") == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[0]
        .endswith("no user gets another value of a flag that there was")
    )
    text = (tree / "base/flags.yaml").read_text()
    assert "fractional: [{cat: [cart, {var: targetingKey}]}, [on, 10], [off, 90]]" in text
    assert "  basket:   # the new one" in text


@pytest.mark.parametrize("words", [(), ("--keep-buckets",)])
@pytest.mark.parametrize(
    "rule", ['"==": [{var: $flagd.flagKey}, cart]', '"in": [{var: $flagd.flagKey}, [cart, other]]']
)
def test_a_rule_that_compares_the_key_is_true_of_the_new_one(
    rule: str, words: tuple[str, ...], tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = BASE.partition("  pay:")[0]
    text = alone.replace("{fractional: [[on, 10], [off, 90]]}", f"{{if: [{{{rule}}}, on, off]}}")
    (tree / "base/flags.yaml").write_text(text)
    assert rename(tree, "cart", "basket", *words) == 0
    printed = capsys.readouterr()
    assert printed.out.endswith("changed: no flag differs\n")
    assert "flagstaff rename: cart becomes basket in base/flags.yaml" in printed.err
    new = text.replace("  cart: ", "  basket: ")
    changed = rule.replace("cart", "basket")
    assert (tree / "base/flags.yaml").read_text() == new.replace(rule, changed)


def test_a_rule_that_needs_a_flag_which_compares_its_key_answers_as_before(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compares = '{if: [{and: [{"==": [{var: $flagd.flagKey}, cart]}, {"==": [{var: tier}, gold]}]}, on, off]}'
    text = BASE.replace("{fractional: [[on, 10], [off, 90]]}", compares)
    (tree / "base/flags.yaml").write_text(text)
    assert rename(tree, "cart", "basket") == 0
    assert "no user gets another value" in capsys.readouterr().out.splitlines()[0]


def test_a_rule_that_reads_the_key_otherwise_keeps_its_answer_if_asked_to(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reads = "{if: [{starts_with: [{var: $flagd.flagKey}, ca]}, on, off]}"
    text = BASE.replace("{fractional: [[on, 10], [off, 90]]}", reads)
    (tree / "base/flags.yaml").write_text(text)
    assert rename(tree, "cart", "basket", "--dry-run") == 0
    assert "no user gets" not in capsys.readouterr().out
    assert rename(tree, "cart", "basket", "--keep-buckets") == 0
    assert "no user gets another value" in capsys.readouterr().out
    assert "starts_with: [cart, ca]" in (tree / "base/flags.yaml").read_text()


def test_code_that_asks_for_the_old_key_is_listed(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "code").mkdir()
    (tree / "code/shop.py").write_text('client.get_boolean_value("cart", False)\n')
    assert rename(tree, "cart", "basket", "--code", str(tree / "code")) == 0
    assert "change the code, too: " in (err := capsys.readouterr().err)
    assert "shop.py:1" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("crt", "basket"), "no layer defines the flag 'crt'"),
        (("cart", "pay"), "there is a flag 'pay' already"),
    ],
)
def test_a_key_that_is_not_there_or_taken_is_refused(
    tree: Path, words: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rename(tree, *words) == 2
    assert message in capsys.readouterr().err
    assert (tree / "base/flags.yaml").read_text() == BASE


def test_a_dry_run_writes_nothing(tree: Path) -> None:
    assert rename(tree, "cart", "basket", "--dry-run") == 0
    assert (tree / "base/flags.yaml").read_text() == BASE


RULES = st.recursive(
    st.sampled_from(["on", "off", {"var": "$flagd.flagKey"}, {"fractional": [["on", 1], ["off", 2]]}]),
    lambda inner: st.one_of(
        st.builds(lambda a, b: {"if": [{"==": [{"var": "tier"}, "gold"]}, a, b]}, inner, inner),
        st.builds(lambda a: {"fractional": [[a, 1], ["off", 1]]}, inner),
    ),
    max_leaves=5,
)


@given(RULES, st.text("abc", min_size=1, max_size=4), st.sampled_from(["gold", "basic"]))
def test_a_rule_with_the_old_key_answers_as_it_did(rule: Any, user: str, tier: str) -> None:
    def answer_in(key: str, given_rule: Any) -> Any:
        context = {"targetingKey": user, "tier": tier, "$flagd": {"flagKey": key, "timestamp": 0}}
        whole = {"cat": [json.loads(json.dumps(given_rule))]}
        return compile_rule(whole, bucketing=Bucketing.V2, flag_key=key)(context)

    assert answer_in("new", with_key(rule, "old", "new")) == answer_in("old", rule)
