"""Verbs read lists in files, and flags of other sets, wherever they read definitions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from controller.cli import main
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

CART = """\
flags:
  cart:
    state: ENABLED
    variants: {on: true, off: false}
    defaultVariant: off
    targeting: {if: [{"==": [{var: tier}, gold]}, on]}
"""
PAY = """\
$evaluators:
  beta: {in: [{var: targetingKey}, {file: beta.segment.csv, column: id}]}
flags:
  pay:
    state: ENABLED
    variants: {on: true, off: false}
    defaultVariant: off
    targeting: {if: [{and: [{$ref: beta}, {flag: [cart, on]}]}, on]}
"""
TEST = """\
tests:
  - {name: beta users, flag: pay, context: {targetingKey: u2, tier: gold}, expect: {variant: "on"}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    repository = Repository(tmp_path / "flags")
    files = {"base/cart.yaml": CART, "pay/pay.yaml": PAY, "pay/beta.segment.csv": "id\nu1\nu2\n"}
    repository.commit("first", **files, **{"pay/pay.flagtest.yaml": TEST})
    monkeypatch.chdir(repository.path)
    return repository.path


@pytest.mark.parametrize("path", ["pay", "pay/pay.yaml", "pay/*.yaml"])
@pytest.mark.parametrize("reference", [(), ("--ref", "HEAD")], ids=["on disk", "a commit"])
@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("lint", ()),
        ("eval", (".", "pay", "--context", "targetingKey=u2", "tier=gold")),
        ("test", ("--source", ".")),
        ("stale", (".",)),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_verb_reads_lists_and_needed_sets(
    verb: str, words: tuple[str, ...], reference: tuple[str, ...], path: str
) -> None:
    assert main([verb, *words, *reference, "--path", path, "--depends-on", "base"]) == 0


def test_without_the_set_the_flag_that_is_needed_is_not_defined(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lint", "--path", "pay"]) == 1
    assert 'pay/pay.yaml:8:50: error: this needs the flag "cart"' in capsys.readouterr().out
    assert (folder / "base").is_dir()


def test_a_plan_tells_a_changed_list_by_its_users(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    users = [f"u{number}" for number in range(1_000)]
    (folder / "pay" / "beta.segment.csv").write_text("\n".join(["id", *users]), encoding="utf-8")
    main(["plan", "--path", "pay", "--depends-on", "base", "-o", "json"])
    plan = json.loads(capsys.readouterr().out)
    assert len(json.dumps(plan)) < 5_000
    assert "pay" in json.dumps(plan)
