"""Alerts to a real HTTP server: what the example shows, an outage that loses and repeats nothing."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.cluster.api import Api, path_of
from tests.cluster.controllers import FLAGSTAFF, controller
from tests.cluster.listener import Listener, run_listener
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.spines import spine_in
from tests.git_http import git_server
from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set, manifest, secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.controllers import ControllerProcess
    from tests.cluster.plane import Plane
    from tests.cluster.spines import Spine

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "notifications" / "alerts.yaml"


@pytest.fixture
def listener() -> Iterator[Listener]:
    with run_listener() as found:
        yield found


def example(listener: Listener) -> list[dict[str, Any]]:
    """What the example applies, on the listener's port."""
    text = EXAMPLE.read_text(encoding="utf-8").replace("http://127.0.0.1:8099/", listener.url)
    return list(yaml.safe_load_all(text))


def test_the_examples_provider_is_notified_of_the_next_commit(spine: Spine, listener: Listener) -> None:
    spine.apply(*example(listener))
    spine.wait_ready("flagprovider", "local")
    spine.wait_ready("flagalert", "everything")
    commit = spine.push("off for the night", flags__json=flags(banner="off"))
    received = listener.wait(lambda event: event["reason"] == "Applied")
    event = received.event
    assert event["involvedObject"] | {"uid": ""} == {
        "apiVersion": "flagstaff.dev/v1beta1", "kind": "FlagSet", "namespace": spine.name, "name": "flags",
        "uid": "",
    }  # fmt: skip
    assert event["severity"] == "info"
    assert event["metadata"]["flagstaff.dev/revision"] == f"main@sha1:{commit}"
    assert event["metadata"]["flagstaff.dev/summary"] == "flags of the shop"
    assert event["metadata"]["flagstaff.dev/idempotency-key"] == received.key
    assert event["metadata"]["flagstaff.dev/changes"] == "~ banner: default on (true) → off (false)"
    assert event["metadata"]["flagstaff.dev/subject"] == "off for the night"
    assert event["metadata"]["flagstaff.dev/author"]
    assert received.headers["gotk-component"] == "flagstaff-controller"
    found = spine.wait("flagprovider", lambda each: not each["status"].get("pending"), "local")
    assert condition(found, "Delivered")["status"] == "True"
    assert found["status"]["waiting"] == 0
    found = spine.wait("flagalert", lambda each: "lastDelivery" in each["status"], "everything")
    assert "lastFailure" not in found["status"]


def test_a_rollout_is_reported_from_its_start_to_its_end(spine: Spine, listener: Listener) -> None:
    policy = {
        "flagSetRef": {"name": "flags"},
        "flags": ["banner"],
        "steps": [{"share": 10}, {"share": 50, "approval": "Required"}],
    }
    sources = [{"kind": "FlagRollout", "name": "banner"}]
    alert = {"providerRef": {"name": "local"}, "eventSources": sources}
    spine.apply(example(listener)[0], manifest("FlagAlert", "rollouts", alert))
    spine.wait_ready("flagalert", "rollouts")
    spine.apply(manifest("FlagRollout", "banner", policy))
    spine.wait("flagrollout", lambda found: found.get("status", {}).get("phase") == "Idle", "banner")
    spine.push(flags__json=flags(banner="off"))

    def wait_for_report(reason: str) -> Any:
        return listener.wait(lambda event: event["reason"] == reason).event

    assert "10% of users" in wait_for_report("RolloutStarted")["message"]
    assert "50% of users" in wait_for_report("StepAdvanced")["message"]
    assert "waits for an approval" in wait_for_report("WaitingForApproval")["message"]
    digest = spine.get("flagrollout", "banner")["status"]["candidates"][0]["digest"]
    for request, reason, severity in (("abort", "RolledBack", "error"), ("promote", "Promoted", "info")):
        annotations = {f"flagstaff.dev/rollout-{request}": digest}
        spine.patch("flagrollout", {"metadata": {"annotations": annotations}}, "banner")
        event = wait_for_report(reason)
        assert (event["involvedObject"]["kind"], event["severity"]) == ("FlagRollout", severity)


def test_a_commit_gets_a_status_that_says_where_its_flags_are(spine: Spine, listener: Listener) -> None:
    spec = {
        "type": "github",
        "address": f"{listener.url.rstrip('/')}/shop/flags",
        "secretRef": {"name": "status"},
    }
    spine.apply(
        secret("status", token="a-token"),
        manifest("FlagProvider", "status", spec),
        manifest(
            "FlagAlert",
            "status",
            {
                "providerRefs": [{"name": "status"}],
                "eventSources": [{"kind": "FlagSet", "name": "*"}],
                "flagSets": ["*/flags"],
            },
        ),
    )
    spine.wait_ready("flagprovider", "status")
    spine.wait_ready("flagalert", "status")
    good = spine.push("off for the night", flags__json=flags(banner="off"))
    pending = listener.wait(lambda status: good in status["description"])
    bad = spine.push("oh", flags__json=flags(banner="nothing"))
    failure = listener.wait(lambda status: status["state"] == "failure" and bad in status["description"])
    assert pending.event["state"] == "pending"
    assert pending.event["context"] == failure.event["context"]
    assert pending.headers["authorization"] == "Bearer a-token"
    assert pending.path == f"/api/v3/repos/shop/flags/statuses/{good}"


def test_a_pull_request_has_one_comment_with_what_it_changes(spine: Spine, listener: Listener) -> None:
    address = f"{listener.url.rstrip('/')}/shop/flags"
    spec = {"type": "githubpullrequestcomment", "address": address, "secretRef": {"name": "comment"}}
    sources = [{"kind": "FlagSet", "name": "*"}]
    patch = '[{"op": "replace", "path": "/flags/banner/defaultVariant", "value": "off"}]'
    preview = flag_set(name="preview", flagSetId="preview", patches=[{"patch": patch}])
    preview["metadata"]["annotations"] = {
        "event.toolkit.fluxcd.io/change_request": "7",
        "flagstaff.dev/compared-with": "flags",
    }
    spine.wait_ready("flagset")
    spine.apply(
        secret("comment", token="a-token"),
        manifest("FlagProvider", "comment", spec),
        manifest("FlagAlert", "comment", {"providerRef": {"name": "comment"}, "eventSources": sources}),
        preview,
    )
    listener.wait(lambda comment: "! banner: default on (true) → off (false)" in comment["body"])
    spine.push("off for all", flags__json=flags(banner="off"))
    listener.wait(lambda comment: "no flag differs" in comment["body"])
    created, *edited = [each.path for each in listener.received]
    assert created == "/api/v3/repos/shop/flags/issues/7/comments"
    assert set(edited) == {"/api/v3/repos/shop/flags/issues/comments/0"}


def test_an_open_pull_request_has_a_comment_that_says_what_it_does_to_users(
    spine: Spine, listener: Listener
) -> None:
    folder = spine.repository.path.parent
    with git_server(folder.parent) as server:
        place = f"{folder.name}/repository"
        spine.patch("flagsource", {"spec": {"git": {"url": f"{server.url}/{place}/.git"}}})
        spine.wait_ready("flagset")
        spine.repository.git("checkout", "-q", "-b", "change")
        commit = spine.repository.commit("off", flags__json=flags(banner="off"))
        spine.repository.git("update-ref", "refs/pull/7/head", commit)
        spine.repository.git("checkout", "-q", "main")
        repository = {"repo": {"id": 1}}
        pull = {"number": 7, "head": {"sha": commit, **repository}, "base": repository, "labels": []}
        listener.lists[f"/api/v3/repos/{place}/pulls"] = [pull]
        provider = {
            "type": "githubpullrequestcomment",
            "address": f"{listener.url}{place}",
            "secretRef": {"name": "comment"},
            "plans": {"flagSets": ["flags"]},
        }
        spine.apply(secret("comment", token="a-token"), manifest("FlagProvider", "plans", provider))
        comment = listener.wait(lambda comment: "default on (true) → off (false)" in comment["body"])
        found = spine.wait("flagprovider", lambda each: bool(condition(each, "Planned")), "plans")
    assert comment.path == f"/api/v3/repos/{place}/issues/7/comments"
    assert "1 flag differs; it gives up to 100 % of users another value" in comment.event["body"]
    assert condition(found, "Planned")["status"] == "True"
    assert spine.served_variants() == {"banner": "on"}


def test_a_signed_post_needs_a_token_and_says_which_key_is_missing(
    space: Namespace, listener: Listener
) -> None:
    provider = manifest("FlagProvider", "signed", {"type": "generic-hmac", "secretRef": {"name": "hook"}})
    space.apply(provider)
    space.wait_reason("flagprovider", "SecretNotFound", "signed")
    space.apply(secret("hook", address=listener.url))
    found = space.wait_reason("flagprovider", "TokenNotFound", "signed")
    assert condition(found, "Ready")["message"] == 'type generic-hmac needs a key "token" in Secret "hook"'
    space.apply(secret("hook", address=listener.url, token="a-token"))
    space.wait_ready("flagprovider", "signed")
    space.patch("flagprovider", {"metadata": {"annotations": {"flagstaff.dev/test-alert": "1"}}}, "signed")
    received = listener.wait(lambda event: event["reason"] == "TestAlert")
    signature = hmac.new(b"a-token", received.body, hashlib.sha256).hexdigest()
    assert received.headers["x-signature"] == f"sha256={signature}"


def flagstaff(space: Namespace, *words: str) -> subprocess.CompletedProcess[str]:
    """What a verb prints of a namespace."""
    command = [FLAGSTAFF, *words, "-n", space.name, "--kubeconfig", str(space.plane.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)


@pytest.mark.long
def test_a_test_is_sent_and_says_what_came_of_it(space: Namespace, listener: Listener) -> None:
    space.apply(*example(listener))
    space.wait_ready("flagprovider", "local")
    done = flagstaff(space, "test-alert", "provider/local")
    assert (done.returncode, done.stdout, done.stderr) == (0, "provider/local: delivered\n", "")
    assert listener.reasons() == ["TestAlert"]
    listener.status = 400
    done = flagstaff(space, "test-alert", "provider/local")
    assert (done.returncode, done.stderr) == (1, "provider/local: the last try failed: status 400\n")
    done = flagstaff(space, "test-alert", "provider/other")
    assert done.returncode == 1
    assert "there is no FlagProvider other in namespace" in done.stderr


def test_events_are_shown_and_followed(spine: Spine) -> None:
    spine.wait_ready("flagset")
    spine.wait("flagset", lambda _: "Applied" in {each["reason"] for each in spine.events()})
    text = flagstaff(spine, "events").stdout
    assert re.search(rf"(?m)^\S+Z  Normal   FlagSet/{spine.name}/flags  Applied  main@sha1:", text)
    command = [
        FLAGSTAFF, "events", "--watch", "-o", "json", "-n", spine.name, "--kubeconfig",
        str(spine.plane.kubeconfig),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            commit = spine.push("off", flags__json=flags(banner="off"))
            found = (json.loads(each) for each in process.stdout)
            event = next(each for each in found if each["reason"] == "Applied" and commit in each["message"])
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=60)
            finally:
                process.kill()
    assert event["metadata"]["flagstaff.dev/revision"] == f"main@sha1:{commit}"
    assert process.returncode == 0


def changes_to(default: str) -> Callable[[Any], bool]:
    """Whether an Event names a change to this default."""
    return lambda event: f"→ {default}" in event["metadata"].get("flagstaff.dev/changes", "")


def test_a_provider_that_hangs_holds_up_neither_flags_nor_another_provider(
    spine: Spine, listener: Listener
) -> None:
    provider, everything = example(listener)
    with run_listener() as hanging:
        hanging.answering.clear()
        spec = {**everything["spec"], "providerRef": {"name": "hanging"}}
        address = {"type": "generic", "address": hanging.url, "timeout": "10m"}
        spine.apply(
            provider,
            everything,
            manifest("FlagProvider", "hanging", address),
            manifest("FlagAlert", "hanging", spec),
        )
        spine.wait_ready("flagalert", "hanging")
        spine.wait_ready("flagprovider", "hanging")
        for default in ("off", "on"):
            spine.wait_applied(spine.push(default, flags__json=flags(banner=default)))
            listener.wait(changes_to(default))
        assert hanging.received == []
        hanging.answering.set()
        hanging.wait(changes_to("on"))
        assert hanging.reasons() == listener.reasons() == ["Applied", "Applied"]


@pytest.mark.long
def test_every_event_is_posted_to_the_address_that_flux_gets_its_events_at(
    spare: Plane, spare_namespace: str, listener: Listener, tmp_path: Path
) -> None:
    with (
        controller(spare, tmp_path / "controller", "--events-addr", listener.url),
        spine_in(spare, spare_namespace, tmp_path) as spine,
    ):
        listener.status = 503
        spine.wait_ready("flagset")
        listener.status = 200
        stored = listener.wait(lambda event: event["reason"] == "NewArtifact").event
        applied = listener.wait(lambda event: event["reason"] == "Applied").event
    assert stored["involvedObject"]["kind"] == "FlagSource"
    assert applied["metadata"]["flagstaff.dev/object"] == f"FlagSet/{spare_namespace}/flags"
    assert applied["metadata"]["flagstaff.dev/changes"]


def test_flux_is_handed_a_message_about_an_object_that_its_alerts_can_choose(
    spine: Spine, listener: Listener
) -> None:
    sources = [{"kind": "FlagSet", "name": "*"}]
    spine.apply(
        manifest("FlagProvider", "flux", {"type": "flux", "address": listener.url}),
        manifest("FlagAlert", "flux", {"providerRef": {"name": "flux"}, "eventSources": sources}),
    )
    spine.wait_ready("flagprovider", "flux")
    spine.wait_ready("flagalert", "flux")
    spine.push("off for the night", flags__json=flags(banner="off"))
    event = listener.wait(lambda event: event["reason"] == "Applied").event
    named = event["involvedObject"]
    assert (named["kind"], named["namespace"], named["name"]) == ("ExternalArtifact", spine.name, "flags")
    group = named["apiVersion"].partition("/")[0]
    assert event["metadata"][f"{group}/object"] == f"FlagSet/{spine.name}/flags"
    assert event["metadata"][f"{group}/changes"] == "~ banner: default on (true) → off (false)"


def grant_of(spine: Spine, from_namespace: str) -> dict[str, Any]:
    """Lets alerts of a namespace report on the spine's flag sets."""
    source = {"group": "flagstaff.dev", "kind": "FlagAlert", "namespace": from_namespace}
    to = {"group": "flagstaff.dev", "kind": "FlagSet"}
    return manifest("FlagGrant", "alerts", {"from": [source], "to": [to]})


@pytest.mark.long
def test_a_selected_namespace_is_reported_to_another_while_it_grants_that(
    spine: Spine, listener: Listener
) -> None:
    api = Api(spine.plane)
    other = Namespace(spine.plane, f"{spine.name}-on-call")
    api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": other.name}})
    try:
        provider, everything = example(listener)
        selector = {"matchLabels": {"kubernetes.io/metadata.name": spine.name}}
        sources = [{"kind": "FlagSet", "name": "*", "namespaceSelector": selector}]
        other.apply(provider, {**everything, "spec": {**everything["spec"], "eventSources": sources}})
        other.wait_ready("flagalert", "everything")
        fail_flag_set(spine, 1)
        spine.apply(grant_of(spine, other.name))
        event = listener.wait(lambda each: each["severity"] == "error").event
        assert event["involvedObject"]["namespace"] == spine.name
        spine.push("good again", flags__json=flags(banner="on"))
        listener.wait(lambda event: event["reason"] == "Recovered")
        other.wait("flagprovider", lambda each: not each["status"].get("pending"), "local")
        api.ask("DELETE", path_of("flaggrant", spine.name, "alerts"))
        # What the provider reported of is forgotten once it learnt that.
        other.wait("flagprovider", lambda each: not each["status"].get("reported"), "local")
        fail_flag_set(spine, 2)
        assert listener.reasons().count("Recovered") == 1
        assert [each.event["severity"] for each in listener.received].count("error") == 1
    finally:
        api.ask("DELETE", f"/api/v1/namespaces/{other.name}")


# -- an outage -----------------------------------------------------------------------------------------------


def fail_flag_set(spine: Spine, number: int) -> None:
    """Have the flag set fail in words that nobody used before."""
    bad = (
        flags(banner="on")
        .replace('"banner"', f'"banner-{number}"')
        .replace('"defaultVariant": "on"', '"defaultVariant": "none"')
    )
    commit = spine.push(f"bad {number}", flags__json=bad)
    spine.wait("flagset", lambda each: commit in condition(each, "Ready").get("message", ""))


def kill_and_restart(process: ControllerProcess) -> None:
    """A controller that is killed, and starts again."""
    process.end(signal.SIGKILL)
    process.start()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_outage_is_one_alert_and_one_recovery_though_all_fail(
    spare: Plane, spare_namespace: str, listener: Listener, tmp_path: Path
) -> None:
    with (
        controller(spare, tmp_path / "controller", "--allow-local-providers") as process,
        spine_in(spare, spare_namespace, tmp_path) as spine,
    ):
        spine.wait_ready("flagset")
        spine.apply(*example(listener))
        spine.wait_ready("flagalert", "everything")
        listener.status = 503
        fail_flag_set(spine, 1)
        spine.wait("flagprovider", lambda each: each["status"].get("pending"), "local")
        kill_and_restart(process)
        fail_flag_set(spine, 2)
        fail_flag_set(spine, 3)
        within(
            lambda: len({each.key for each in listener.refused}) and len(listener.refused) > 1,
            process.log_text,
        )
        process.end(signal.SIGKILL)
        listener.status = 200
        process.start()
        first = listener.wait(lambda event: event["severity"] == "error")
        fail_flag_set(spine, 4)
        kill_and_restart(process)
        spine.push("good again", flags__json=flags(banner="on"))
        listener.wait(lambda event: event["reason"] == "Recovered")
        spine.wait("flagprovider", lambda each: not each["status"].get("pending"), "local")
        process.end()
        process.start()
        spine.push("off", flags__json=flags(banner="off"))
        listener.wait(lambda event: "1 changed: banner" in event["message"])
    reported = [each for each in listener.received if each.event["reason"] != "Applied"]
    assert [each.event["severity"] for each in reported] == ["error", "info"]
    assert reported[0].key == first.key
    assert {each.key for each in listener.refused} == {first.key}
    assert len({each.key for each in listener.received}) == len(listener.received)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_outage_over_a_hand_over_of_the_lead_is_one_alert_and_one_recovery(
    spare: Plane, spare_namespace: str, listener: Listener, tmp_path: Path
) -> None:
    options = ("--allow-local-providers", "--lease-name", spare_namespace)
    with (
        controller(spare, tmp_path / "a", *options, name="a") as leader,
        spine_in(spare, spare_namespace, tmp_path) as spine,
    ):
        spine.wait_ready("flagset")
        spine.apply(*example(listener))
        spine.wait_ready("flagalert", "everything")
        with controller(spare, tmp_path / "b", *options, name="b") as standby:
            listener.status = 503
            fail_flag_set(spine, 1)
            spine.wait("flagprovider", lambda each: each["status"].get("pending"), "local")
            within(lambda: listener.refused, leader.log_text)
            assert not standby.leads
            leader.end(signal.SIGKILL)
            standby.wait_leads()
            fail_flag_set(spine, 2)
            listener.status = 200
            first = listener.wait(lambda event: event["severity"] == "error")
            spine.wait("flagprovider", lambda each: not each["status"].get("pending"), "local")
            leader.start()
            standby.end(signal.SIGKILL)
            leader.wait_leads()
            spine.push("good again", flags__json=flags(banner="on"))
            listener.wait(lambda event: event["reason"] == "Recovered")
            spine.push("off", flags__json=flags(banner="off"))
            listener.wait(lambda event: "1 changed: banner" in event["message"])
    reported = [each for each in listener.received if each.event["reason"] != "Applied"]
    assert [each.event["severity"] for each in reported] == ["error", "info"]
    assert {each.key for each in listener.refused} == {first.key}
    assert len({each.key for each in listener.received}) == len(listener.received)
