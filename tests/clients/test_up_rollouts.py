"""`flagstaff up --rollout`, as its users run it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from controller.cli import main
from tests.clients.asking import ask_flag, served_value
from tests.clients.server import until
from tests.clients.up import banner, up
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

ROLLOUT: dict[str, Any] = {
    "apiVersion": "flagstaff.dev/v1beta1",
    "kind": "FlagRollout",
    "metadata": {"name": "banners", "namespace": "shop"},
    "spec": {
        "flagSetRef": {"name": "production"},
        "flags": ["ban*"],
        "steps": [{"share": 10}, {"share": 50, "approval": "Required"}],
    },
}
DATES_THAT_GO_BACK = [
    {"share": 10, "at": "2026-12-01T08:00:00+01:00"},
    {"share": 50, "at": "2026-12-01T06:59:59Z"},
]
OVERRIDE: dict[str, Any] = {
    "apiVersion": "flagstaff.dev/v1beta1",
    "kind": "FlagOverride",
    "metadata": {"name": "party", "namespace": "shop"},
    "spec": {
        "flagSetRef": {"name": "production"},
        "flag": "banner",
        "variant": "party",
        "reason": "a test",
        "expiresAt": "2999-01-01T00:00:00Z",
    },
}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit(flags__json=banner("plain"))
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "rollout.json"
    written.write_text(json.dumps(ROLLOUT))
    return written


def promotion(port: int, commit: str, rollout: str = "local/banners", **payload: str) -> tuple[int, str, str]:
    """(status, state, message) that the page answers to a gate of a cluster."""
    url = f"http://127.0.0.1:{port}/ui/rollouts/{rollout}/promoted"
    if payload:
        answer = urllib3.request("POST", url, json=payload)
    else:
        answer = urllib3.request("GET", url, fields={"revision": commit})
    said = answer.json()
    return answer.status, said.get("state", ""), said["message"]


def test_the_page_tells_gates_of_clusters_whether_a_commit_is_promoted(
    repository: Repository, file: Path
) -> None:
    first = repository.git("rev-parse", "HEAD")
    with up(repository, "--rollout", str(file)) as running:
        port = running.ready()["management"]
        until(lambda: promotion(port, first)[:2] == (200, "promoted"))
        second = repository.commit(flags__json=banner("party"))
        running.wait(lambda event: event.get("reason") == "WaitingForApproval")
        status, state, words = promotion(port, second)
        assert (status, state) == (409, "pending")
        assert words.endswith("50% of users get the new definition of banner; it waits for an approval")
        assert promotion(port, first)[:2] == (200, "promoted")
        assert promotion(port, "", revision=f"main@sha1:{second}")[:2] == (409, "pending")
        assert promotion(port, second, "local/others")[0] == promotion(port, second, "others")[0] == 404
        file.write_text(json.dumps({**ROLLOUT, "spec": {**ROLLOUT["spec"], "steps": [{"share": 10}]}}))
        until(lambda: promotion(port, second)[:2] == (200, "promoted"))


def test_each_step_is_an_event_and_a_restart_goes_on_from_it(
    repository: Repository, file: Path, tmp_path: Path
) -> None:
    words = ("--rollout", str(file), "--state-dir", str(tmp_path / "state"))
    with up(repository, *words) as running:
        running.ready()
        commit = repository.commit(flags__json=banner("party"))
        running.revision(commit)
        reasons = []
        while "WaitingForApproval" not in reasons:
            event = running.wait(lambda event: event["event"] == "rollout")
            assert event["rollout"] == "banners"
            reasons.append(event["reason"])
        assert reasons == ["RolloutStarted", "StepAdvanced", "WaitingForApproval"]
    approved = {**ROLLOUT["spec"], "steps": [{"share": 10}, {"share": 50}]}
    file.write_text(json.dumps({**ROLLOUT, "spec": approved}))
    with up(repository, *words) as running:
        ports = running.ready()
        running.wait(lambda event: event.get("reason") == "Promoted")
        assert served_value(ports["ofrep"]) == "Hooray"


def test_an_edited_file_takes_effect_and_a_bad_one_is_refused_with_its_line(
    repository: Repository, file: Path
) -> None:
    with up(repository, "--rollout", str(file)) as running:
        ports = running.ready()
        running.revision(repository.commit(flags__json=banner("party")))
        running.wait(lambda event: event.get("reason") == "WaitingForApproval")
        bad = json.dumps({**ROLLOUT, "spec": {**ROLLOUT["spec"], "steps": [{"shares": 10}]}}, indent=1)
        file.write_text(bad)
        refused = running.wait(lambda event: event["event"] == "rollout-files")
        line = bad[: bad.index('"shares"')].count("\n") + 1
        assert refused["state"] == "refused"
        assert f"{file}:{line}:" in refused["message"]
        assert "share" in refused["message"]
        file.write_text("kind: 'FlagRollout")
        broken = running.wait(lambda event: event["event"] == "rollout-files")
        assert broken["state"] == "refused"
        assert f"{file}:1:" in broken["message"]
        digest = ask_flag(ports["ofrep"])["metadata"]["flagstaff.dev/rollout-candidate"]
        annotations = {"flagstaff.dev/rollout-approve": f"{digest}/2"}
        approved = {**ROLLOUT, "metadata": {**ROLLOUT["metadata"], "annotations": annotations}}
        file.write_text(json.dumps(approved))
        assert running.wait(lambda event: event["event"] == "rollout-files")["state"] == "applied"
        running.wait(lambda event: event.get("reason") == "Promoted")
        assert served_value(ports["ofrep"]) == "Hooray"


def test_an_override_in_the_file_is_served_until_it_is_removed(repository: Repository, file: Path) -> None:
    def is_applied(event: dict[str, Any]) -> bool:
        return event.get("state") == "applied"

    with up(repository, "--rollout", str(file)) as running:
        ports = running.ready()
        for _ in range(2):
            file.write_text(json.dumps({"kind": "List", "items": [ROLLOUT, OVERRIDE]}))
            running.wait(is_applied)
            answer = ask_flag(ports["ofrep"])
            assert answer["value"] == "Hooray"
            assert answer["metadata"]["flagstaff.dev/override"] == "party"
            file.write_text(json.dumps(ROLLOUT))
            running.wait(is_applied)
            assert served_value(ports["ofrep"]) == "Welcome"


def test_an_override_hides_a_rollout_which_goes_on_beneath(repository: Repository, file: Path) -> None:
    steps = {**ROLLOUT["spec"], "steps": [{"share": 10}, {"share": 50}]}
    file.write_text(json.dumps({**ROLLOUT, "spec": steps}))
    with up(repository, "--rollout", str(file), "--override", "banner=plain") as running:
        ports = running.ready()
        repository.commit(flags__json=banner("party"))
        running.wait(lambda event: event.get("reason") == "Promoted")
        answer = ask_flag(ports["ofrep"])
        assert answer["value"] == "Welcome"
        assert answer["metadata"]["flagstaff.dev/override"] == "--override banner=plain"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**ROLLOUT, "spec": {**ROLLOUT["spec"], "steps": [{"share": 0}]}}, "share"),
        (
            {**ROLLOUT, "spec": {**ROLLOUT["spec"], "steps": DATES_THAT_GO_BACK}},
            "at must not be earlier than in a step before",
        ),
        ({**ROLLOUT, "kind": "FlagSet"}, "these manifests cannot be used"),
        ([], "there is no FlagRollout in "),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    content: Any, message: str, repository: Repository, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(json.dumps(content))
    assert main(["up", str(repository.path), "--rollout", str(file)]) == 2
    assert message in capsys.readouterr().err
