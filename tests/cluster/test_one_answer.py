"""Two candidates of a FlagRollout beside each other, to one promotion and one stop with an override between:
what verbs and page say at every step is what a thousand users get.
"""

from __future__ import annotations

import json
import re
import subprocess
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster.controllers import FLAGSTAFF
from tests.cluster.fleets import flagstaff, followed_source
from tests.cluster.pages import PageProcess, page, token_of
from tests.cluster.patience import within
from tests.cluster.pods import PodProcess, pods
from tests.worlds.flags import flags
from tests.worlds.objects import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.proxies import ProxyProcess
    from tests.cluster.spines import Spine

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
USERS: Final = 1000
STEPS: Final = [{"share": 10, "approval": "Required"}, {"share": 50, "approval": "Required"}]
NEAR: Final = 4.0
"""Percentage points by which the users of a step may differ from its share: four standard deviations."""


class Shop:
    """A set whose changes are rolled out, an evaluator, and a page."""

    def __init__(self, spine: Spine, pod: PodProcess, shown: PageProcess) -> None:
        self.spine = spine
        self.pod = pod
        self._page = shown
        self._token = token_of(spine)
        self.commits: list[str] = []

    def push(self, **defaults: str) -> str:
        """Commit the flags with these default variants."""
        content = flags(**{"hero": "off", "pay": "off", **defaults})
        commit = self.spine.push(str(defaults), flags__json=content)
        self.commits.append(commit)
        return commit

    def users_of(self, key: str) -> frozenset[int]:
        """The users for whom a flag is on."""
        connection = HTTPConnection("127.0.0.1", self.pod.port("ofrep"), timeout=10)
        on = set()
        for user in range(USERS):
            body = json.dumps({"context": {"targetingKey": f"user-{user}"}})
            connection.request(
                "POST", f"/ofrep/v1/evaluate/flags/{key}", body, {"Content-Type": "application/json"}
            )
            if json.loads(connection.getresponse().read()).get("value") is True:
                on.add(user)
        connection.close()
        return frozenset(on)

    def verb(self, *words: str, code: int = 0) -> str:
        """What a verb prints."""
        ended, text = flagstaff(self.spine.plane, *words, "-n", self.spine.name)
        assert ended == code, text
        return text

    def page(self, path: str) -> str:
        """The text of a page, without its markup."""
        status, text = self._page.get(path, self._token)
        assert status == 200, text
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))

    def candidate(self, key: str) -> dict[str, Any]:
        """The candidate with a flag."""
        status = self.spine.get("flagrollout", "checkout").get("status", {})
        return next((one for one in status.get("candidates", ()) if key in one.get("flags", {})), {})

    def reach(self, key: str, **fields: str) -> None:
        """Wait until the candidate with a flag has these fields, and an evaluator serves it."""
        within(
            lambda: all(self.candidate(key).get(name) == value for name, value in fields.items()),
            lambda: str(self.candidate(key)),
        )

    def explain(self, key: str) -> str:
        """How the evaluator comes to the answer of one user."""
        at = f"127.0.0.1:{self.pod.port('management')}"
        done = subprocess.run(
            [FLAGSTAFF, "explain", key, "--to", at, "--context", "targetingKey=user-1"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def require_agreement(self, **percents: int) -> dict[str, frozenset[int]]:
        """Require that what is said of each flag is what users get, by the percentage of users who have its
        new definition: 100 for everybody, 0 for nobody. Returns these users.
        """
        within(lambda: self.spine.get("ffc")["status"].get("served") == "1/1")
        users = {key: self.users_of(key) for key in percents}
        rows = self.verb("get", "sets")
        whole = {
            "describe": self.verb("describe", "set", "flags"),
            "wait": self.verb("wait", "flagset/flags", "--revision", self.commits[-1]),
            "page": self.page(f"/delivery?set={self.spine.name}/flags"),
        }
        for key, percent in percents.items():
            share = 100.0 * len(users[key]) / USERS
            assert abs(share - percent) <= (NEAR if 0 < percent < 100 else 0), f"{key}: {share} % of users"
            texts = {
                **whole,
                "explain": self.explain(key),
                "page of the flag": self.page(f"/flag?set={self.spine.name}/flags&key={key}"),
            }
            if 0 < percent < 100:
                for where, text in texts.items():
                    assert f"{percent}%" in text.replace(" %", "%"), f"{key}, {where}: {text}"
        if set(percents.values()) != {100}:
            for where, text in {**whole, "get": rows}.items():
                assert "rollout" in text.lower(), f"{where}: {text}"
            code, text = flagstaff(
                self.spine.plane, "wait", "flagset/flags", "--revision", self.commits[-1], "-n",
                self.spine.name, "--for", "everybody", "--timeout", "1s",
            )  # fmt: skip
            assert code != 0, text
        else:
            self.verb("wait", "flagset/flags", "--revision", self.commits[-1], "--for", "everybody")
        return users


@pytest.fixture
def shop(spine: Spine, delivering: ProxyProcess, tmp_path: Path) -> Iterator[Shop]:
    source = followed_source(delivering.target, spine.name)
    spine.wait_applied(spine.push(flags__json=flags(hero="off", pay="off")))
    spec = {"flagSetRef": {"name": "flags"}, "flags": ["*"], "steps": STEPS, "promotion": "Manual"}
    spine.apply(manifest("FlagRollout", "checkout", spec))
    spine.wait("flagrollout", lambda found: found.get("status", {}).get("phase") == "Idle", "checkout")
    with (
        pods(spine.plane, spine.name, source, tmp_path / "pods", "web-1") as [pod],
        page(spine.plane, tmp_path / "page") as shown,
    ):
        made = Shop(spine, pod, shown)
        within(lambda: made.spine.get("ffc")["status"].get("served") == "1/1")
        yield made


def start_two_candidates(shop: Shop) -> dict[str, frozenset[int]]:
    """Commit two changes, one after the other: the second is a candidate of its own, and the first keeps its
    users.
    """
    shop.push(hero="on")
    shop.reach("hero", phase="Paused", reason="WaitingForApproval", stepText="1/2")
    first = shop.require_agreement(hero=10, pay=0)
    shop.push(hero="on", pay="on")
    shop.reach("pay", phase="Paused", reason="WaitingForApproval", stepText="1/2")
    both = shop.require_agreement(hero=10, pay=10)
    assert both["hero"] == first["hero"]
    return both


def stop_by_override(shop: Shop, users: frozenset[int]) -> None:
    """Stop the second change by an override: it stays stopped after the override, and the first goes on."""
    assert "1 of 1" in shop.verb("override", "set", "flags/pay=off", "--for", "1h", "--reason", "INC-4711")
    shop.reach("pay", reason="OverrideActive")
    assert shop.require_agreement(hero=50, pay=0)["hero"] == users
    shop.verb("override", "end", "flags.pay")
    shop.reach("pay", reason="OverrideEnded")
    shop.require_agreement(hero=50, pay=0)


def test_what_is_said_is_what_users_get_from_two_changes_to_a_promotion_and_a_stop(shop: Shop) -> None:
    both = start_two_candidates(shop)
    hero, pay = (shop.candidate(key)["digest"] for key in ("hero", "pay"))
    shop.verb("rollout", "approve", "checkout", "--candidate", hero)
    shop.reach("hero", phase="Paused", reason="WaitingForApproval", stepText="2/2")
    later = shop.require_agreement(hero=50, pay=10)
    assert both["hero"] < later["hero"]
    assert both["pay"] == later["pay"]
    stop_by_override(shop, later["hero"])

    shop.verb("rollout", "approve", "checkout", "--candidate", hero)
    shop.reach("hero", phase="WaitingPromotion")
    shop.verb("rollout", "approve", "checkout", "--candidate", hero)
    within(lambda: not shop.candidate("hero"))
    shop.require_agreement(hero=100, pay=0)

    # A person decides that the stopped change goes on, to the same users, and aborts it then.
    shop.verb("rollout", "resume", "checkout", "--candidate", pay)
    shop.reach("pay", reason="WaitingForApproval", stepText="1/2")
    assert shop.require_agreement(hero=100, pay=10)["pay"] == both["pay"]
    shop.verb("rollout", "abort", "checkout", "--candidate", pay)
    shop.reach("pay", phase="Failed")
    shop.require_agreement(hero=100, pay=0)

    # Another commit does not bring the stopped definition back.
    shop.push(hero="off", pay="on")
    shop.reach("hero", phase="Paused", reason="WaitingForApproval", stepText="1/2")
    shop.require_agreement(pay=0)
