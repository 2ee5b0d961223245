"""The whole way on a real API server: a commit, a source, a flag set, a FeatureFlagConfiguration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster.patience import within
from tests.worlds.flags import flags
from tests.worlds.objects import condition

if TYPE_CHECKING:
    from tests.cluster.spines import Spine


def test_a_commit_becomes_a_configuration_that_names_it(spine: Spine) -> None:
    commit = spine.push("banner off", flags__json=flags(banner="off"))
    found = spine.wait("ffc", lambda each: each["status"].get("revision") == f"main@sha1:{commit}")
    assert spine.served_variants() == {"banner": "off"}
    assert found["metadata"]["annotations"]["flagstaff.dev/revision"] == f"main@sha1:{commit}"
    assert condition(found, "Ready")["status"] == "True"
    assert found["status"]["flags"] == 1


def test_a_bad_flag_is_held_and_its_sibling_moves_on(spine: Spine) -> None:
    spine.push(flags__json=flags(banner="on", cart="on"))
    spine.wait("ffc", lambda each: each["status"].get("flags") == 2)
    broken = flags(banner="nonsense", cart="off")
    spine.push("breaks the banner", flags__json=broken)
    found = spine.wait_reason("flagset", "PartiallyApplied")
    assert spine.served_variants() == {"banner": "on", "cart": "off"}
    assert [each["name"] for each in found["status"]["held"]] == ["banner"]
    assert found["status"]["problems"][0]["file"] == "flags.json"
    assert "flags.json:1" in condition(found, "Ready")["message"]


def test_each_manual_edit_is_corrected_and_reported(spine: Spine) -> None:
    edit_and_wait(spine)
    within(lambda: corrections_reported(spine) == 1)
    edit_and_wait(spine)
    within(lambda: corrections_reported(spine) == 2)


def edit_and_wait(spine: Spine) -> None:
    """Change a flag by hand; until it is as Git has it."""
    spine.patch("ffc", {"spec": {"flagSpec": {"flags": {"banner": {"defaultVariant": "off"}}}}})
    spine.wait("ffc", lambda it: it["spec"]["flagSpec"]["flags"]["banner"]["defaultVariant"] == "on")


def corrections_reported(spine: Spine) -> int:
    """How many Events report a correction."""
    return [each["reason"] for each in spine.events()].count("DriftCorrected")


def test_what_a_flag_set_made_goes_with_it(spine: Spine) -> None:
    spine.kubectl("delete", "flagset", "flags")
    spine.kubectl("wait", "--for=delete", "ffc/flags", "--timeout=30s")
    assert spine.all("ffc") == []


def test_nothing_of_kopf_is_on_any_object(spine: Spine) -> None:
    for kind in ("flagsource", "flagset", "ffc"):
        meta = spine.get(kind)["metadata"]
        assert "finalizers" not in meta
        assert not [key for key in meta.get("annotations", {}) if "kopf" in key]
