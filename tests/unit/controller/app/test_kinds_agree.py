"""What the stages declare, what has a reconciler, and what the installation may read and write are the same
kinds.
"""

from __future__ import annotations

import re
import tomllib
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import MagicMock

import pytest
import yaml

from controller.api.flagsource import PROVIDERS
from controller.api.kind import READ
from controller.api.kinds import (
    CONFIG_MAP,
    IN_PROCESS_CONFIGURATION,
    KINDS,
    NAMESPACE,
    SECRET,
    WATCHED,
    WORKLOADS,
)
from controller.api.meta import API_VERSION
from controller.api.records import FLUX_SOURCES
from controller.app.reconcilers import STAGES, Providers, reconcilers_of
from controller.app.settings import ControllerSettings
from controller.runtime.cache import Cache
from controller.runtime.limits import UNLIMITED

if TYPE_CHECKING:
    from controller.api.kind import Kind

ROOT: Final = Path(__file__).parents[4]
REFERRED: Final = (SECRET, CONFIG_MAP, NAMESPACE, *WORKLOADS)
"""Watched where an object refers to one, by rights that are given beside those of the controller's role."""
WRITTEN: Final = [each for each in KINDS if each.judged]
"""What users write."""
RECONCILED: Final = [stage.type for stage in STAGES]


def granted_rights() -> set[tuple[str, str, str]]:
    """(group, resource, verb) of what the controller's own ClusterRole lets it do everywhere."""
    documents = yaml.load_all((ROOT / "deploy/base/rbac.yaml").read_text(), yaml.CSafeLoader)
    (role,) = [each for each in documents if _name(each) == ("ClusterRole", "flagstaff-controller")]
    rules = [rule for rule in role["rules"] if "resourceNames" not in rule]
    return {each for rule in rules for each in product(rule["apiGroups"], rule["resources"], rule["verbs"])}


def _name(document: dict[str, Any]) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def test_each_stage_has_a_reconciler_and_each_reconciler_a_stage() -> None:
    shared = MagicMock(settings=ControllerSettings(), objects=Cache(), limits=UNLIMITED)
    shared.accounts.cluster.server = "https://10.0.0.1:6443"
    reconcilers = reconcilers_of(shared, Providers({}, {}), MagicMock(), MagicMock(), MagicMock())
    assert list(reconcilers) == [each.kind for each in RECONCILED]


def test_what_stages_watch_is_watched() -> None:
    known = {each.kind for each in (*WATCHED, *REFERRED)}
    assert {each.kind for each in RECONCILED} <= {each.kind for each in WATCHED}
    assert {kind for stage in STAGES for watch in stage.wakes for kind in watch.kinds} <= known
    assert {kind for stage in STAGES for index in stage.indexes for kind in index.kinds} <= known


@pytest.mark.parametrize("type_", WRITTEN, ids=lambda each: each.kind)
def test_what_users_write_is_documented(type_: Kind) -> None:
    # The settings of in-process providers are part of injection.
    own = f"kinds/{type_.kind.lower()}.md"
    page = "injection.md#inprocessconfiguration" if type_ == IN_PROCESS_CONFIGURATION else own
    assert (ROOT / "docs" / page.partition("#")[0]).exists()
    assert f"[{type_.kind}]({page})" in (ROOT / "docs" / "README.md").read_text()
    deleted = re.findall("kubectl delete ([a-z,]+) --all", (ROOT / "docs" / "install.md").read_text())
    assert type_.api_version != API_VERSION or type_.plural in deleted[0].split(",")


def test_the_first_stage_may_import_no_backend() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    forbidden = [
        each["forbidden_modules"] for each in contracts if "stage 1 knows no backend" in each["name"]
    ]
    assert {f"controller.sources.{name}_backend" for name in PROVIDERS} <= set(forbidden[0])


def test_the_controller_watches_every_kind_and_may_read_it() -> None:
    assert (*KINDS, *FLUX_SOURCES) == WATCHED
    rights = granted_rights()
    for type_ in WATCHED:
        assert {(type_.group, type_.plural, verb) for verb in READ} <= rights


def test_the_statuses_that_may_be_written_are_those_of_the_reconciled_kinds() -> None:
    written = {(group, resource) for group, resource, _ in granted_rights() if resource.endswith("/status")}
    # Exported artifacts have no reconciler: the stage of sources makes them with their status.
    exported = {("source.toolkit.fluxcd.io", "externalartifacts/status")}
    assert written - exported == {(each.group, f"{each.plural}/status") for each in RECONCILED}
