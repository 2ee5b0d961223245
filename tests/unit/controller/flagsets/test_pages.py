"""The pages of these kinds, against the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.api.fields import Model, read
from controller.api.flagset import FlagSetSpec
from controller.api.flagset_status import FlagSetStatus
from controller.api.meta import Resource
from controller.configurations.validation import validate
from controller.delivery.delivered import LARGEST, SHARD_BYTES, SHARD_BYTES_LEAST
from controller.delivery.problem_text import MOST_PROBLEMS
from controller.flagsets import delivery, messages

ROOT = Path(__file__).parents[4]
REASON = re.compile(
    r'(?:Stalled|Waiting|Failed|refusal|ArchiveRefused)\(\s*"([A-Z]\w+)"|reason, message = "(\w+)"'
)
SHARED = {"conditions", "observedGeneration", "lastHandledReconcileAt"}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def example(name: str) -> dict[str, Any]:
    block = re.search(r"```yaml\n(.*?)```", page(name), re.DOTALL)
    assert block is not None
    found: dict[str, Any] = yaml.safe_load(block[1])
    return found


def test_the_flag_set_of_the_page_can_be_read() -> None:
    spec = read(FlagSetSpec, example("kinds/flagset.md")["spec"])
    assert spec.paths == ("flags/base", "flags/overlays/production")


def test_the_configuration_of_the_page_is_sound() -> None:
    resource = Resource.of(example("kinds/featureflagconfiguration.md"))
    assert validate(resource, lambda _: None).outcome.message == "1 flag is valid"


@pytest.mark.parametrize(
    ("name", "model"), [("flagset", FlagSetStatus), ("featureflagconfiguration", ConfigurationStatus)]
)
def test_every_field_of_the_status_is_on_its_page(name: str, model: type[Model]) -> None:
    text = page(f"kinds/{name}.md")
    fields = {each.alias or key for key, each in model.model_fields.items()} - SHARED - {"served"}
    assert {field for field in fields if not re.search(rf"`{field}[`.]", text)} == set()


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("flagset", ("flagsets/reconciler", "flagsets/dependencies", "flagsets/fetch", "flagsets/delivery")),
        ("featureflagconfiguration", ("configurations/validation",)),
    ],
)
def test_every_reason_is_on_its_page(name: str, modules: tuple[str, ...]) -> None:
    code = "".join((ROOT / f"controller/{each}.py").read_text(encoding="utf-8") for each in modules)
    reasons = {one or other for one, other in REASON.findall(code)}
    assert reasons
    assert {each for each in reasons if f"`{each}`" not in page(f"kinds/{name}.md")} == set()


def test_the_numbers_on_the_pages_are_the_code_s() -> None:
    shards = page("kinds/featureflagconfiguration.md") + page("adr/0010-shards.md")
    assert all(f"{number:,}" in shards for number in (LARGEST, SHARD_BYTES, SHARD_BYTES_LEAST))
    assert f"{LARGEST:,} bytes" in page("kinds/flagset.md")
    assert delivery.GRACE == 60
    status = page("kinds/flagset.md")
    assert f"({messages.MOST_HELD} at most)" in status
    assert f"{MOST_PROBLEMS} at most" in status
    assert f"the last {messages.MOST_HISTORY} revisions" in status
