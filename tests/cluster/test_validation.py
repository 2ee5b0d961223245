"""What the API server answers to kubectl where an object of ours is bad, word for word."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.bad_manifests import BEYOND_SCHEMA, BY_SCHEMA, DOUBTFUL
from tests.cluster.admission import admission
from tests.cluster.controllers import controller
from tests.cluster.golden import check, mask
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.worlds.objects import configuration, manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.cluster.admission import AdmissionProcess
    from tests.cluster.plane import Plane

DRY = "--dry-run=server"
CONTROLLER = "system:serviceaccount:flagstaff-system:flagstaff-controller"


@pytest.fixture(scope="module")
def installed(spare: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdmissionProcess]:
    folder = tmp_path_factory.mktemp("validation")
    with controller(spare, folder / "controller"), admission(spare, folder / "admission") as process:
        yield process


@pytest.fixture
def shop(installed: AdmissionProcess, spare: Plane, spare_namespace: str) -> Namespace:
    """Once the API server asks about objects: where it cannot ask, it lets them pass."""
    space = Namespace(spare, spare_namespace)
    within(lambda: "denied" in apply(space, BEYOND_SCHEMA["FlagSet"], DRY), installed.log_text)
    return space


def apply(space: Namespace, manifest: dict[str, Any], *words: str) -> str:
    """What kubectl prints."""
    return space.kubectl("apply", "-f", "-", *words, given=json.dumps(manifest), check=False)


def answers(space: Namespace, manifests: Mapping[str, dict[str, Any]]) -> str:
    texts = (f"# {name}\n{apply(space, manifest, DRY)}" for name, manifest in manifests.items())
    return mask("\n".join(texts), space.name)


def test_what_the_definitions_refuse_says_what_is_wrong(shop: Namespace) -> None:
    check("refused-by-schema", lambda: answers(shop, BY_SCHEMA))


def test_what_the_parsers_refuse_says_where_and_what_to_do(shop: Namespace) -> None:
    check("refused-by-parsers", lambda: answers(shop, BEYOND_SCHEMA))


def test_doubtful_objects_are_stored_with_a_warning(shop: Namespace) -> None:
    check("stored-with-a-warning", lambda: answers(shop, DOUBTFUL))


def test_a_bad_change_of_a_good_object_is_refused_and_its_labels_can_be_changed(shop: Namespace) -> None:
    good = {**BEYOND_SCHEMA["FlagSource"], "spec": {"interval": "1m", "git": {"url": "https://h.example/x"}}}
    assert "created" in apply(shop, {**good, "spec": {**good["spec"], "suspend": True}})
    bad = BEYOND_SCHEMA["FlagSource"]
    assert "FlagSource checkout: spec.git.ref.branch: '-x' is not" in apply(shop, bad)
    assert "labeled" in shop.kubectl("label", "flagsource", "checkout", "team=shop")


def test_the_label_of_a_flag_set_passes_by_the_judgement_only_where_the_controller_writes(
    shop: Namespace,
) -> None:
    bad = BEYOND_SCHEMA["FeatureFlagConfiguration"]
    bad = {**bad, "metadata": {**bad["metadata"], "labels": {"flagstaff.dev/flagset": "checkout"}}}
    manager = f"--field-manager=flagstaff-flagset/{shop.name}/checkout"
    assert "denied" in apply(shop, bad, DRY)
    assert "denied" in apply(shop, bad, DRY, "--server-side", manager)
    controller_s = ("--as", CONTROLLER, "--as-group", "system:masters")
    assert "denied" in apply(shop, bad, DRY, "--server-side", *controller_s)
    assert "denied" not in apply(shop, bad, DRY, "--server-side", manager, *controller_s)


def banner(default: str) -> dict[str, Any]:
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": default}
    return configuration("banner", flagSpec={"flags": {"banner": flag}})


def is_answered(space: Namespace, words: str) -> bool:
    return words in apply(space, banner("off"), DRY)


def test_flag_policies_judge_flags_that_people_write(shop: Namespace) -> None:
    spec = {
        "matchConditions": [{"name": "changed", "expression": 'plan.change == "Changed"'}],
        "validations": [{"expression": "plan.most <= 10", "messageExpression": '"ask " + author'}],
    }
    assert "created" in apply(shop, banner("on"))
    for action in ("Deny", "Hold"):
        apply(shop, manifest("FlagPolicy", "small-steps", {"action": action, **spec}))
        words = f'policy {shop.name}/small-steps ({action}): flag "banner": ask '
        within(functools.partial(is_answered, shop, words))
        refused = apply(shop, banner("off"))
        assert "denied the request: FeatureFlagConfiguration banner: policy" in refused
    apply(shop, manifest("FlagPolicy", "small-steps", {"action": "Warn", **spec}))
    within(lambda: "denied" not in apply(shop, banner("off"), DRY))
    stored = apply(shop, banner("off"))
    assert f"Warning: FeatureFlagConfiguration banner: policy {shop.name}/small-steps (Warn)" in stored
    assert "featureflagconfiguration.core.openfeature.dev/banner configured" in stored
