"""The whole way on a real API server: a commit, a source, a flag set, a FeatureFlagConfiguration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cluster.objects import Namespace, condition, flag_set, flag_source
from tests.git_http import git_server
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane
    from tests.cluster.plugin import ControllerPorts


def flags(**defaults: str) -> str:
    variants = {"on": True, "off": False}
    return json.dumps(
        {
            "flags": {
                key: {"state": "ENABLED", "variants": variants, "defaultVariant": default}
                for key, default in defaults.items()
            }
        }
    )


class Spine(Namespace):
    """A namespace with a repository that its FlagSource and FlagSet follow."""

    def __init__(self, plane: Plane, name: str, repository: Repository, url: str) -> None:
        super().__init__(plane, name)
        self.repository = repository
        self.url = url

    def push(self, message: str = "a change", **files: str) -> str:
        """Commit, and ask the source to look."""
        commit = self.repository.commit(message, **files)
        self.poke("flagsource")
        return commit

    def served(self) -> dict[str, str]:
        """Default variants by key, as the FeatureFlagConfiguration has them."""
        spec = self.get("ffc").get("spec", {}).get("flagSpec", {}).get("flags", {})
        return {key: flag["defaultVariant"] for key, flag in spec.items()}


@pytest.fixture
def spine(
    cluster: Plane, controller_ports: ControllerPorts, namespace: str, tmp_path: Path
) -> Iterator[Spine]:
    assert controller_ports.management
    repository = Repository(tmp_path / "repository")
    repository.commit("first", flags__json=flags(banner="on"))
    with git_server(tmp_path) as server:
        spine = Spine(cluster, namespace, repository, f"{server.url}/repository/.git")
        spine.apply(flag_source(spine.url), flag_set())
        spine.wait_ready("flagset")
        yield spine


def test_a_commit_becomes_a_configuration_that_names_it(spine: Spine) -> None:
    commit = spine.push("banner off", flags__json=flags(banner="off"))
    found = spine.wait("ffc", lambda each: each["status"].get("revision") == f"main@sha1:{commit}")
    assert spine.served() == {"banner": "off"}
    assert found["metadata"]["annotations"]["flagstaff.dev/revision"] == f"main@sha1:{commit}"
    assert condition(found, "Ready")["status"] == "True"
    assert found["status"]["flags"] == 1


def test_a_bad_flag_is_held_and_its_sibling_moves_on(spine: Spine) -> None:
    spine.push(flags__json=flags(banner="on", cart="on"))
    spine.wait("ffc", lambda each: each["status"].get("flags") == 2)
    broken = flags(banner="nonsense", cart="off")
    spine.push("breaks the banner", flags__json=broken)
    found = spine.wait_reason("flagset", "PartiallyApplied")
    assert spine.served() == {"banner": "on", "cart": "off"}
    assert [each["name"] for each in found["status"]["held"]] == ["banner"]
    assert found["status"]["problems"][0]["file"] == "flags.json"
    assert "flags.json:1" in condition(found, "Ready")["message"]


def test_a_hand_edit_is_corrected_and_told(spine: Spine) -> None:
    patch = {"spec": {"flagSpec": {"flags": {"banner": {"defaultVariant": "off"}}}}}
    spine.kubectl("patch", "ffc", "flags", "--type=merge", "-p", json.dumps(patch))
    spine.wait(
        "ffc", lambda each: each["spec"]["flagSpec"]["flags"]["banner"]["defaultVariant"] == "on"
    )
    spine.wait("flagset", lambda _: any(e["reason"] == "DriftCorrected" for e in spine.events()))


def test_what_a_flag_set_made_goes_with_it(spine: Spine) -> None:
    spine.kubectl("delete", "flagset", "flags")
    spine.kubectl("wait", "--for=delete", "ffc/flags", "--timeout=30s")
    assert spine.get("ffc") == {}


def test_nothing_of_kopf_is_on_any_object(spine: Spine) -> None:
    for kind in ("flagsource", "flagset", "ffc"):
        meta = spine.get(kind)["metadata"]
        assert "finalizers" not in meta
        assert not [key for key in meta.get("annotations", {}) if "kopf" in key]
