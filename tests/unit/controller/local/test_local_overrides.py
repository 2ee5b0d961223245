"""`flagstaff up --override`: what is served, and what is kept."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from controller.local.local_mode import evaluator_settings, open_local
from controller.local.local_options import LocalOptions
from controller.local.local_progress import LocalOverrides
from controller.local.local_stages import build_once
from evaluator.flags.canonical import digest
from evaluator.flags.merge import parse
from evaluator.flags.model import DIGEST_KEY
from evaluator.flags.overrides import Override
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}
DOCUMENT = json.dumps({"flags": {"pay": FLAG}})
OFF = Override("--override pay=off", "pay", "off", "set on the command line", None)


def test_a_set_is_served_with_the_override_and_its_own_digest() -> None:
    flag_set = parse(DOCUMENT.encode(), file="flags.json").flag_set
    served, known = LocalOverrides((OFF,)).apply(flag_set, digest(flag_set))
    assert known == digest(served) == served.metadata[DIGEST_KEY] != digest(flag_set)
    assert served.flags["pay"].metadata["flagstaff.dev/override"] == "--override pay=off"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (Override("o", "payy", "off", "r", None), 'the set has no flag "payy" (did you mean "pay"?)'),
        (Override("o", "pay", "of", "r", None), 'flag "pay" has no variant "of" (did you mean "off"?)'),
    ],
)
def test_an_override_that_does_not_fit_is_warned_of(
    override: Override, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    flag_set = parse(DOCUMENT.encode(), file="flags.json").flag_set
    with caplog.at_level(logging.WARNING):
        assert LocalOverrides((override,)).apply(flag_set, "known") == (flag_set, "known")
    assert words in caplog.text


async def test_the_flags_that_were_kept_are_served_with_the_override(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(flags__json=DOCUMENT)
    options = LocalOptions(str(repository.path), state_dir=tmp_path / "state", overrides=(OFF,))
    await build_once(options)
    free = dict.fromkeys(("port", "sync_port", "ofrep_port", "management_port"), 0)
    settings = evaluator_settings(host="127.0.0.1", **free)
    async with open_local(options, settings, lambda _: None) as (local, _):
        flag_set = local.exchange.store.snapshot
        assert flag_set is not None
        assert "flagstaff.dev/override" in flag_set.flag_set.flags["pay"].metadata
