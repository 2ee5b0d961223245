"""FlagOverrides on the real API server: set, served, shown, refused, and ended by themselves."""

from __future__ import annotations

import json
import re
import signal
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from controller.runtime.clock import now
from evaluator.host.times import timestamp
from tests.clients.asking import ask_flag
from tests.cluster import golden
from tests.cluster.admission import Installation, run_installation
from tests.cluster.fleets import flagstaff, followed_source
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.pods import PodProcess, pods
from tests.worlds.flags import flags
from tests.worlds.objects import configuration, manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane

PAGE = Path(__file__).parents[2] / "docs" / "overrides.md"
SET_BY = "flagstaff.dev/set-by"
ON_CALL = ("--as=ada", "--as-group=system:masters")
pytestmark = [pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def installed(spare: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with run_installation(spare, tmp_path_factory.mktemp("overrides")) as found:
        yield found


@pytest.fixture
def shop(installed: Installation, spare: Plane, spare_namespace: str) -> Namespace:
    """A namespace with a flag set."""
    assert installed.proxy.target
    space = Namespace(spare, spare_namespace)
    space.apply(configuration(flagSpec=json.loads(flags(pay="on"))))
    space.wait_ready("ffc")
    return space


@pytest.fixture
def pod(installed: Installation, shop: Namespace, tmp_path: Path) -> Iterator[PodProcess]:
    """An evaluator that serves the set."""
    source = followed_source(installed.proxy.target, shop.name)
    with pods(shop.plane, shop.name, source, tmp_path / "pods", "web-1") as [found]:
        within(lambda: answer(found)[0] is True)
        yield found


def override(name: str = "pay-off", seconds: float = 3600, **spec: Any) -> str:
    """A FlagOverride of the flag `pay`; None removes a field."""
    expires = timestamp(now() + timedelta(seconds=seconds))
    given = {
        "flagSetRef": {"name": "flags"}, "flag": "pay", "variant": "off", "reason": "INC-1: payments fail",
        "expiresAt": expires, **spec,
    }  # fmt: skip
    given = {key: value for key, value in given.items() if value is not None}
    named = {"apiVersion": "flagstaff.dev/v1beta1", "kind": "FlagOverride", "metadata": {"name": name}}
    return json.dumps({**named, "spec": given})


def flag_with(variants: dict[str, bool], default: str = "on", state: str = "ENABLED") -> dict[str, Any]:
    """A document with the flag `pay` alone."""
    return {"flags": {"pay": {"state": state, "variants": variants, "defaultVariant": default}}}


GONE: dict[str, Any] = {"flags": {}}
DISABLED = flag_with({"on": True}, state="DISABLED")


def answer(pod: PodProcess, **context: str) -> tuple[object, dict[str, Any]]:
    """The value of `pay` and the metadata of the answer; None where it has no value."""
    with suppress(OSError):
        given = ask_flag(pod.port("ofrep"), "pay", **context)
        if "errorCode" not in given:
            return given.get("value"), given.get("metadata", {})
    return None, {}


def conditions(found: dict[str, Any]) -> dict[str, str]:
    listed = found.get("status", {}).get("conditions", ())
    return {each["type"]: each["message"] for each in listed}


def test_an_override_is_served_shown_and_ended(shop: Namespace, pod: PodProcess) -> None:
    shop.kubectl("apply", *ON_CALL, "-f", "-", given=override())
    within(lambda: answer(pod)[0] is False)
    metadata = answer(pod)[1]
    assert metadata["flagstaff.dev/override"] == "pay-off"
    assert metadata["flagstaff.dev/override-reason"] == "INC-1: payments fail"
    shop.wait("flagoverride", lambda found: found.get("status", {}).get("state") == "Active", "pay-off")
    shop.wait("ffc", lambda found: "pay-off" in conditions(found).get("OverrideActive", ""))
    shop.wait("ffc", lambda found: found["status"].get("served") == "1/1")
    golden.check("overrides", lambda: golden.mask(shop.kubectl("get", "fover", "-o", "wide"), shop.name))
    shop.delete("flagoverride", "pay-off")
    within(lambda: answer(pod)[0] is True)
    assert "flagstaff.dev/override" not in answer(pod)[1]
    shop.wait("ffc", lambda found: "OverrideActive" not in conditions(found))
    reasons = {"OverrideActive", "OverrideEnded"}
    within(lambda: reasons <= {event["reason"] for event in shop.all("event")})


def test_an_override_works_and_ends_while_the_controller_is_stopped(
    installed: Installation, shop: Namespace, pod: PodProcess
) -> None:
    installed.controller.send(signal.SIGSTOP)
    try:
        shop.kubectl("apply", "-f", "-", given=override(seconds=6))
        within(lambda: answer(pod)[0] is False)
        within(lambda: answer(pod)[0] is True)
    finally:
        installed.controller.send(signal.SIGCONT)
    shop.wait("flagoverride", lambda found: found.get("status", {}).get("state") == "Expired", "pay-off")


@pytest.mark.long
def test_a_disabled_flag_is_enabled_again_while_proxy_and_controller_are_stopped(
    installed: Installation, shop: Namespace, pod: PodProcess
) -> None:
    ends = time.monotonic() + 8
    shop.kubectl("apply", "-f", "-", given=override(seconds=8, variant=None, disabled=True))
    within(lambda: answer(pod)[0] is None)
    stopped = installed.proxy, installed.controller
    for process in stopped:
        process.send(signal.SIGSTOP)
    try:
        assert time.monotonic() < ends - 1, "the override was served too late to be seen to end"
        within(lambda: answer(pod)[0] is True)
    finally:
        for process in stopped:
            process.send(signal.SIGCONT)


def test_who_set_an_override_is_recorded_and_cannot_be_changed(shop: Namespace) -> None:
    forged = json.loads(override())
    forged["metadata"]["annotations"] = {SET_BY: "eve"}
    shop.kubectl("apply", *ON_CALL, "-f", "-", given=json.dumps(forged))
    shop.kubectl("annotate", "fover", "pay-off", f"{SET_BY}=eve", "--overwrite")
    assert shop.get("flagoverride", "pay-off")["metadata"]["annotations"][SET_BY] == "ada"
    shop.kubectl("patch", "fover", "pay-off", "--as=bob", "--as-group=system:masters", "--type=merge",
                 "-p", '{"spec": {"reason": "INC-2"}}')  # fmt: skip
    assert shop.get("flagoverride", "pay-off")["metadata"]["annotations"][SET_BY] == "bob"


def test_the_role_of_the_page_is_enough_for_on_call_and_allows_nothing_else(shop: Namespace) -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    role = yaml.safe_load(block)
    role["metadata"]["namespace"] = shop.name
    shop.kubectl("apply", "-f", "-", given=json.dumps(role))
    shop.kubectl("create", "rolebinding", "on-call", f"--role={role['metadata']['name']}", "--user=ada")
    shop.kubectl("apply", "--as=ada", "-f", "-", given=override())
    shop.kubectl(
        "patch", "fover", "pay-off", "--as=ada", "--type=merge", "-p", '{"spec": {"reason": "INC-2"}}'
    )
    assert "pay-off" in shop.kubectl("get", "fover", "--as=ada")
    for words in (("delete", "ffc", "flags"), ("annotate", "ffc", "flags", "a=b"), ("get", "secrets")):
        with pytest.raises(RuntimeError, match="Forbidden"):
            shop.kubectl(*words, "--as=ada")
    shop.kubectl("delete", "fover", "pay-off", "--as=ada")


def test_a_verb_sets_lists_and_ends_an_override(shop: Namespace, pod: PodProcess) -> None:
    def override(*words: str) -> str:
        code, text = flagstaff(shop.plane, "override", *words, "-n", shop.name)
        assert code == 0, text
        return text

    assert override("list") == "no overrides\n"
    text = override("set", "flags/pay=off", "--reason", "INC-1", "--for", "2h")
    assert answer(pod)[0] is False
    assert '"off": INC-1; 1 of 1 evaluators serve it; when it ends: default variant "on"' in text
    name, flag_set, flag, value, state = override("list").splitlines()[1].split()[:5]
    assert (name, flag_set, flag, value, state) == ("flags.pay", "flags", "pay", "off", "Active")
    override("set", "flags/pay", "--disabled", "--reason", "INC-2", "--for", "1h")
    assert answer(pod)[0] is None
    text = override("end", "flags.pay")
    assert answer(pod)[0] is True
    assert 'flag "pay" now: default variant "on"; 1 of 1 evaluators serve it' in text


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "hint"),
    [
        ("flag/pay=off", "did you mean 'flags'?"),
        ("flags/payy=off", 'did you mean "pay"?'),
        ("flags/pay=offf", 'did you mean "off"?'),
    ],
)
def test_a_verb_refuses_a_set_a_flag_or_a_variant_that_is_not_there(
    shop: Namespace, what: str, hint: str
) -> None:
    words = ("override", "set", what, "-n", shop.name, "--reason", "INC-1", "--for", "1h")
    code, text = flagstaff(shop.plane, *words)
    assert (code, hint in text) == (1, True), text
    assert shop.all("flagoverride") == []
    code, text = flagstaff(shop.plane, *words, "--force")
    assert (code, "written: Unknown" in text) == (1, True), text
    assert len(shop.all("flagoverride")) == 1


@pytest.mark.long
def test_without_a_controller_a_verb_claims_no_more_than_the_write(
    installed: Installation, shop: Namespace, pod: PodProcess
) -> None:
    words = ("override", "set", "flags/pay=off", "-n", shop.name, "--reason", "INC-1", "--for", "1h")
    installed.controller.send(signal.SIGSTOP)
    try:
        code, text = flagstaff(shop.plane, *words, "--timeout", "2s")
        assert (code, "written: not in effect within 2 s: no controller reports on it" in text) == (
            1,
            True,
        ), text
        within(lambda: answer(pod)[0] is False)
        assert flagstaff(shop.plane, *words, "--no-wait")[0] == 0
    finally:
        installed.controller.send(signal.SIGCONT)


@pytest.mark.long
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(flag_with({"on": True}), id="without the variant"),
        pytest.param(flag_with({"on": True, "off": True}), id="with another value of the variant"),
        pytest.param(DISABLED, id="disabled"),
        pytest.param(GONE, id="without the flag"),
    ],
)
def test_a_commit_changes_nothing_for_users_under_an_override(
    shop: Namespace, pod: PodProcess, document: dict[str, Any]
) -> None:
    shop.kubectl("apply", "-f", "-", given=override())
    within(lambda: answer(pod)[0] is False)
    shop.wait("flagoverride", lambda found: "kept" in found.get("status", {}), "pay-off")
    before = shop.get("ffc")["status"]["digest"]
    shop.apply(configuration(flagSpec=document))
    shop.wait("ffc", lambda found: found["status"].get("digest") != before)
    shop.wait("ffc", lambda found: found["status"].get("served") == "1/1")
    assert answer(pod)[0] is False
    found = shop.get("flagoverride", "pay-off")
    assert (found["status"]["state"], found["status"]["kept"]["value"]) == ("Active", "false")
    shop.delete("flagoverride", "pay-off")
    within(lambda: answer(pod)[0] is (None if document in (GONE, DISABLED) else True))


@pytest.mark.long
def test_of_two_overrides_the_later_one_wins_for_the_users_that_it_covers(
    shop: Namespace, pod: PodProcess
) -> None:
    def values() -> list[object]:
        return [answer(pod, country=country)[0] for country in ("NL", "BE")]

    def state(name: str, wanted: str) -> None:
        shop.wait("flagoverride", lambda found: found.get("status", {}).get("state") == wanted, name)

    audience = {"==": [{"var": "country"}, "NL"]}
    shop.kubectl("apply", "-f", "-", given=override("some-off", audience=audience))
    within(lambda: values() == [False, True])
    time.sleep(1.1)  # Of one second, the name would decide.
    shop.kubectl("apply", "-f", "-", given=override("all-disabled", variant=None, disabled=True, seconds=8))
    within(lambda: values() == [None, None])
    state("some-off", "Hidden")
    assert "all-disabled is later" in conditions(shop.get("flagoverride", "some-off"))["Ready"]
    assert "over FlagOverride some-off" in conditions(shop.get("flagoverride", "all-disabled"))["Ready"]
    _, listed = flagstaff(shop.plane, "override", "list", "-n", shop.name)
    assert "some-off" in next(line for line in listed.splitlines() if line.startswith("all-disabled"))
    within(lambda: values() == [False, True])
    state("some-off", "Active")


@pytest.mark.long
def test_a_promotion_changes_nothing_for_users_under_an_override(shop: Namespace, pod: PodProcess) -> None:
    promotion = {
        "flagSetRef": {"name": "flags"},
        "flags": ["pay"],
        "steps": [{"share": 20}],
        "promotion": "Manual",
    }
    shop.apply(manifest("FlagRollout", "checkout", promotion))
    shop.wait("flagrollout", lambda found: found.get("status", {}).get("phase") == "Idle", "checkout")
    shop.apply(configuration(flagSpec=flag_with({"on": True, "new": True}, "new")))
    shop.wait("flagrollout", lambda found: "1/1" in json.dumps(found["status"]), "checkout")
    code, text = flagstaff(
        shop.plane, "override", "set", "flags/pay=off", "-n", shop.name, "--reason", "INC-1", "--for", "1h"
    )
    assert (code, answer(pod)[0]) == (0, False), text
    flagstaff(shop.plane, "rollout", "promote", "checkout", "-n", shop.name)
    within(lambda: "1/1" not in json.dumps(shop.get("flagrollout", "checkout")["status"]))
    shop.wait("ffc", lambda found: found["status"].get("served") == "1/1")
    assert answer(pod)[0] is False
    assert shop.get("flagoverride", "flags.pay")["status"]["state"] == "Active"
    assert flagstaff(shop.plane, "override", "end", "flags.pay", "-n", shop.name)[0] == 0
    assert answer(pod)[0] is True


REFUSED = {
    "an expiry in the past": override(seconds=-60),
    "an expiry too far ahead": override(seconds=8 * 86_400),
    "no reason": override(reason=None),
    "a variant and disabled": override(disabled=True),
    "neither": override(variant=None),
    "an audience of a disabled flag": override(variant=None, disabled=True, audience={"var": "a"}),
}


def test_what_is_refused_says_why(shop: Namespace) -> None:
    def refusals() -> str:
        shown = []
        for name, given in REFUSED.items():
            with pytest.raises(RuntimeError) as refusal:
                shop.kubectl("apply", "-f", "-", given=given)
            shown.append(f"# {name}\n{refusal.value}")
        return golden.mask("\n".join(shown), shop.name)

    golden.check("refused-overrides", refusals)


@pytest.mark.parametrize(
    ("spec", "state"),
    [
        ({"flagSetRef": {"name": "nothing"}}, "UnknownFlagSet"),
        ({"flag": "payy"}, "UnknownFlag"),
        ({"variant": "of"}, "UnknownVariant"),
    ],
)
def test_an_override_of_what_is_not_there_says_so(shop: Namespace, spec: dict[str, Any], state: str) -> None:
    shop.kubectl("apply", "-f", "-", given=override(**spec))
    shop.wait("flagoverride", lambda found: found.get("status", {}).get("state") == state, "pay-off")
