"""FlagOverrides on the real API server: set, served, shown, refused, and ended by themselves."""

from __future__ import annotations

import json
import re
import signal
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from controller.api.objects.meta import timestamp
from controller.runtime.clock import now
from tests.cluster import golden
from tests.cluster.admission import admission
from tests.cluster.controllers import ControllerProcess, controller
from tests.cluster.fleets import flagstaff, followed_source
from tests.cluster.objects import Namespace, configuration, flags
from tests.cluster.patience import within
from tests.cluster.pods import PodProcess, pods
from tests.cluster.proxies import ProxyProcess, proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane

PAGE = Path(__file__).parents[2] / "docs" / "overrides.md"
SET_BY = "flagstaff.dev/set-by"
ON_CALL = ("--as=ada", "--as-group=system:masters")
pytestmark = [pytest.mark.timeout(300)]


@dataclass(frozen=True, slots=True)
class Installed:
    """What runs."""

    controller: ControllerProcess
    proxy: ProxyProcess


@pytest.fixture(scope="module")
def installed(spare: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("overrides")
    with (
        proxy(spare, folder / "proxy") as delivering,
        controller(spare, folder / "controller") as leader,
        admission(spare, folder / "admission"),
    ):
        leader.wait_leads()
        yield Installed(leader, delivering)


@pytest.fixture
def shop(installed: Installed, spare: Plane, spare_namespace: str) -> Namespace:
    """A namespace with a flag set."""
    assert installed.proxy.target
    space = Namespace(spare, spare_namespace)
    space.apply(configuration(flagSpec=json.loads(flags(pay="on"))))
    space.wait_ready("ffc")
    return space


@pytest.fixture
def pod(installed: Installed, shop: Namespace, tmp_path: Path) -> Iterator[PodProcess]:
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


def answer(pod: PodProcess) -> tuple[object, dict[str, Any]]:
    """The value of `pay` and the metadata of the answer; None where it has no value."""
    url = f"http://127.0.0.1:{pod.port('ofrep')}/ofrep/v1/evaluate/flags/pay"
    asked = urllib.request.Request(url, b"{}", {"content-type": "application/json"})
    with suppress(OSError, urllib.error.HTTPError), urllib.request.urlopen(asked) as reply:
        body = json.load(reply)
        return body.get("value"), body.get("metadata", {})
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
    installed: Installed, shop: Namespace, pod: PodProcess
) -> None:
    installed.controller.send(signal.SIGSTOP)
    try:
        shop.kubectl("apply", "-f", "-", given=override(seconds=6))
        within(lambda: answer(pod)[0] is False)
        within(lambda: answer(pod)[0] is True)
    finally:
        installed.controller.send(signal.SIGCONT)
    shop.wait("flagoverride", lambda found: found.get("status", {}).get("state") == "Expired", "pay-off")


def test_a_disabled_flag_is_enabled_again_while_proxy_and_controller_are_stopped(
    installed: Installed, shop: Namespace, pod: PodProcess
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
    assert "until" in override("set", "flags/pay=off", "--reason", "INC-1", "--for", "2h")
    within(lambda: answer(pod)[0] is False)
    name, flag_set, flag, value = override("list").splitlines()[1].split()[:4]
    assert (name, flag_set, flag, value) == ("flags.pay", "flags", "pay", "off")
    override("set", "flags/pay", "--disabled", "--reason", "INC-2", "--for", "1h")
    within(lambda: answer(pod)[0] is None)
    override("end", "flags.pay")
    within(lambda: answer(pod)[0] is True)


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
