"""`flagstaff up --rollout`: the reconcilers of a cluster roll changes out to the evaluator of the process."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import jsonschema_rs
import pytest
from aiohttp import web

from controller.cli.up import JsonReport, TextReport
from controller.delivery.changed_flags import answers, numbered_users
from controller.local.commits import open_backend
from controller.local.local_events import OverridesChanged, RevisionBuilt, RolloutFilesRead, RolloutHappened
from controller.local.local_objects import rollout_objects, secrets_of
from controller.local.local_options import LocalOptions
from controller.local.local_stages import stages_of
from controller.runtime.clock import now
from controller.runtime.setbacks import Stalled
from evaluator.resolving.resolve import compile_flag_set
from tests.clients.up import SCHEMA
from tests.repositories import Repository
from tests.web_server import web_server
from tests.worlds.flagsets import flag

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from controller.local.local_events import LocalEvent
    from controller.local.local_stages import LocalStages
    from evaluator.flags.model import FlagSet

Event = TypeVar("Event")
_ENDS = frozenset({"Promoted", "RolloutReverted", "WaitingForApproval"})
USERS = tuple(numbered_users(1_000))
ROLLOUT: dict[str, Any] = {
    "apiVersion": "flagstaff.dev/v1beta1",
    "kind": "FlagRollout",
    "metadata": {"name": "checkout", "namespace": "shop"},
    "spec": {
        "flagSetRef": {"name": "production"},
        "flags": ["pay*"],
        "steps": [{"share": 10}, {"share": 50}],
    },
}


def rollout(**spec: Any) -> dict[str, Any]:
    return {**ROLLOUT, "spec": {**ROLLOUT["spec"], **spec}}


def template(port: int) -> dict[str, Any]:
    provider = {"type": "prometheus", "address": f"http://127.0.0.1:{port}"}
    return {
        "apiVersion": "flagstaff.dev/v1beta1",
        "kind": "MetricTemplate",
        "metadata": {"name": "errors", "namespace": "shop"},
        "spec": {"provider": provider, "query": 'errors{flag="{{ flag }}"}'},
    }


def override_until(end: datetime) -> dict[str, Any]:
    return {
        "apiVersion": "flagstaff.dev/v1beta1",
        "kind": "FlagOverride",
        "metadata": {"name": "stop"},
        "spec": {
            "flagSetRef": {"name": "production"},
            "flag": "other",
            "variant": "on",
            "reason": "a test",
            "expiresAt": end.isoformat(timespec="seconds"),
        },
    }


def pay(default: str) -> str:
    return json.dumps({"flags": {"pay": flag(defaultVariant=default), "other": flag(defaultVariant=default)}})


class Served:
    """Stages that run, what they served, and what they said."""

    def __init__(self) -> None:
        self.newest: FlagSet | None = None
        self.most = 0
        self.again = asyncio.Event()
        """Set whenever a set is served."""
        self.stages: LocalStages | None = None
        self.happened: list[RolloutHappened] = []
        self._events: AsyncIterator[Any] | None = None

    async def serve(self, flag_set: FlagSet, digest: str) -> None:
        """Implements `Serve`."""
        assert digest.startswith("sha256:")
        self.newest = flag_set
        self.again.set()
        self.most = max(self.most, self.users())

    def users(self, key: str = "pay") -> int:
        """How many of a thousand users get `on`."""
        assert self.newest is not None
        return answers(compile_flag_set(self.newest), key, USERS, 0).count("on")

    async def follow(self) -> list[str]:
        """The reasons of what happens to the rollout, until it ends or is held."""
        reasons = []
        assert self._events is not None
        async with asyncio.timeout(30):
            async for event in self._events:
                if isinstance(event, RolloutHappened):
                    reasons.append(event.reason)
                    self.happened.append(event)
                    if event.reason in _ENDS or "is rolled back" in event.message:
                        return reasons
        return reasons

    async def revision(self) -> None:
        """Until a revision is built."""
        assert self._events is not None
        async with asyncio.timeout(30):
            async for event in self._events:
                if isinstance(event, RevisionBuilt):
                    return

    async def read(self) -> str:
        """Why the manifests that came next were refused; empty: they are applied."""
        return (await self.one(RolloutFilesRead)).refused

    async def one(self, kind: type[Event]) -> Event:
        """The next event of a kind."""
        assert self._events is not None
        async with asyncio.timeout(30):
            async for event in self._events:
                if isinstance(event, kind):
                    return event
        raise AssertionError("events do not end")

    @contextlib.asynccontextmanager
    async def run(self, options: LocalOptions) -> AsyncIterator[LocalStages]:
        """The stages of `options`, while the block lasts."""
        async with (
            open_backend(options) as (source, folder),
            stages_of(options, source, folder, contextlib.nullcontext, self.serve) as stages,
        ):
            saved = await stages.restore()
            if saved is not None:
                self.newest = saved.flag_set
            self._events = stages.events()
            task = asyncio.create_task(stages.run())
            try:
                yield stages
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit(flags__json=pay("off"))
    return made


async def test_a_change_is_rolled_out_in_steps_and_promoted(repository: Repository) -> None:
    served = Served()
    async with served.run(LocalOptions(str(repository.path), rollouts=(ROLLOUT,))):
        await served.revision()
        repository.commit(flags__json=pay("on"))
        assert await served.follow() == ["RolloutStarted", "StepAdvanced", "Promoted"]
        assert (served.users(), served.users("other")) == (1_000, 1_000)


async def test_a_step_that_waits_is_served_again_after_a_restart(
    repository: Repository, tmp_path: Path
) -> None:
    steps = [{"share": 10, "approval": "Required"}, {"share": 50}]
    state = tmp_path / "state"
    options = LocalOptions(str(repository.path), state_dir=state, rollouts=(rollout(steps=steps),))
    served = Served()
    async with served.run(options):
        await served.revision()
        repository.commit(flags__json=pay("on"))
        assert await served.follow() == ["RolloutStarted", "WaitingForApproval"]
        before = served.users()
    assert served.most == before
    assert 60 < before < 140
    again = Served()
    async with again.run(options):
        assert again.users() == before
        async with asyncio.timeout(30):
            await again.again.wait()
        repository.commit(flags__json=pay("off"))
        assert await again.follow() == ["RolloutReverted"]
        assert again.users() == 0
    assert again.most == before


async def test_an_annotation_in_the_file_approves_after_a_restart(
    repository: Repository, tmp_path: Path
) -> None:
    waiting = rollout(steps=[{"share": 10, "approval": "Required"}, {"share": 50}])
    options = LocalOptions(str(repository.path), state_dir=tmp_path / "state", rollouts=(waiting,))
    served = Served()
    async with served.run(options):
        await served.revision()
        repository.commit(flags__json=pay("on"))
        assert await served.follow() == ["RolloutStarted", "WaitingForApproval"]
    assert served.newest is not None
    digest = served.newest.flags["pay"].metadata["flagstaff.dev/rollout-candidate"]
    annotations = {"flagstaff.dev/rollout-approve": f"{digest}/1"}
    approved = {**waiting, "metadata": {**waiting["metadata"], "annotations": annotations}}
    again = Served()
    async with again.run(replace(options, rollouts=(approved,))):
        assert await again.follow() == ["StepAdvanced", "Promoted"]


async def test_a_step_that_waits_says_which_line_of_the_file_lets_it_go_on(repository: Repository) -> None:
    waiting = rollout(steps=[{"share": 10, "approval": "Required"}, {"share": 50}])
    served = Served()
    async with served.run(LocalOptions(str(repository.path), rollouts=(waiting,))) as stages:
        await served.revision()
        repository.commit(flags__json=pay("on"))
        assert await served.follow() == ["RolloutStarted", "WaitingForApproval"]
        held = served.happened[-1]
        digits = held.candidate.removeprefix("sha256:")[:12]
        assert f'FlagRollout checkout: flagstaff.dev/rollout-approve: "{digits}/1"' in held.message
        texts = [event.message for event in served.happened]
        assert not [text for text in texts if "flagstaff rollout" in text or "-n local" in text]
        assert {event.candidate for event in served.happened} == {held.candidate}
        annotations = {"flagstaff.dev/rollout-approve": f"{digits}/1"}
        assert stages.rollouts is not None
        stages.rollouts.replace(
            [{**waiting, "metadata": {**waiting["metadata"], "annotations": annotations}}]
        )
        assert await served.follow() == ["StepAdvanced", "Promoted"]


async def test_a_step_begins_at_its_date(repository: Repository) -> None:
    date = (now() + timedelta(seconds=4)).isoformat(timespec="seconds")
    served = Served()
    dated = rollout(steps=[{"share": 10}, {"share": 50, "at": date}])
    async with served.run(LocalOptions(str(repository.path), rollouts=(dated,))):
        await served.revision()
        repository.commit(flags__json=pay("on"))
        assert await served.follow() == ["RolloutStarted", "RolloutHeld", "StepAdvanced", "Promoted"]
        assert now() >= datetime.fromisoformat(date)
    assert served.happened[1].message.endswith(f"is held: it waits for a date: until {date}")


async def test_the_files_say_what_was_read_and_when_their_override_takes_effect_and_ends(
    repository: Repository,
) -> None:
    override = override_until(now() + timedelta(seconds=4))
    served = Served()
    async with served.run(LocalOptions(str(repository.path), rollouts=(ROLLOUT, override))):
        seen: list[LocalEvent] = [await served.one(RolloutFilesRead)]
        seen += [await served.one(OverridesChanged), await served.one(OverridesChanged)]
    out = io.StringIO()
    for event in seen:
        TextReport(out).event(event)
    lines = out.getvalue().splitlines()
    assert lines[0] == "--rollout: read FlagRollout checkout, FlagOverride stop"
    assert lines[1].startswith('override in force: flag "other" is "on" until ')
    assert lines[2].startswith("override ended: ")


@pytest.mark.parametrize(
    "event",
    [
        RolloutFilesRead("", ("checkout",), ("stop",)),
        RolloutFilesRead("bad"),
        RolloutHappened("checkout", "RolloutHeld", "why", warning=True, candidate="sha256:1a"),
        OverridesChanged("x", active=False),
    ],
)
def test_every_event_of_rollouts_has_the_form_of_the_schema(event: LocalEvent) -> None:
    out = io.StringIO()
    JsonReport(out).event(event)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema_rs.validator_for(schema).validate(json.loads(out.getvalue()))


async def test_a_rollout_that_was_removed_and_added_again_rolls_out_the_next_change(
    repository: Repository,
) -> None:
    served = Served()
    other = rollout(flags=["other"])
    other["metadata"] = {"name": "others"}
    async with served.run(LocalOptions(str(repository.path), rollouts=(ROLLOUT, other))) as stages:
        await served.revision()
        assert stages.rollouts is not None
        stages.rollouts.replace([other])
        assert await served.read() == ""
        stages.rollouts.replace([ROLLOUT, other])
        assert await served.read() == ""
        repository.commit(flags__json=pay("on"))
        reasons = sorted(await served.follow() + await served.follow())
        assert reasons == sorted(["RolloutStarted", "StepAdvanced", "Promoted"] * 2)


async def test_manifests_that_are_refused_are_reported_once_and_the_earlier_ones_stay(
    repository: Repository,
) -> None:
    served = Served()
    async with served.run(LocalOptions(str(repository.path), rollouts=(ROLLOUT,))) as stages:
        await served.revision()
        rollouts = stages.rollouts
        assert rollouts is not None
        with pytest.raises(Stalled, match="no FlagRollout"):
            rollouts.replace([template(1)])
        for message in ("bad", "bad", "worse"):
            rollouts.refuse(message)
        rollouts.replace([ROLLOUT])
        rollouts.replace([ROLLOUT])
        assert [await served.read() for _ in range(3)] == ["bad", "worse", ""]
        repository.commit(flags__json=pay("on"))
        assert await served.follow() == ["RolloutStarted", "StepAdvanced", "Promoted"]


async def test_an_override_ends_by_itself(repository: Repository) -> None:
    override = override_until(now() + timedelta(seconds=4))
    served = Served()
    async with served.run(LocalOptions(str(repository.path), rollouts=(ROLLOUT, override))):
        await served.revision()
        assert served.newest is not None
        async with asyncio.timeout(30):
            while "flagstaff.dev/override" in served.newest.flags["other"].metadata:
                served.again.clear()
                await served.again.wait()


async def test_a_change_whose_metric_is_bad_is_rolled_back(repository: Repository) -> None:
    async def answer(_: web.Request) -> web.Response:
        sample = {"metric": {}, "value": [0, "0.2"]}
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": [sample]}})

    metric = {"name": "errors", "templateRef": {"name": "errors"}, "thresholdRange": {"max": 0.01}}
    analysis = {"interval": "10s", "failureLimit": 1, "metrics": [metric]}
    served = Served()
    async with web_server(web.route("*", "/api/v1/query", answer)) as port:
        manifests = (rollout(analysis=analysis), template(port))
        async with served.run(LocalOptions(str(repository.path), rollouts=manifests)):
            await served.revision()
            repository.commit(flags__json=pay("on"))
            assert (await served.follow())[0] == "RolloutStarted"
            assert (served.users(), served.users("other")) == (0, 1_000)
    assert 60 < served.most < 140


def test_a_file_is_about_one_flag_set_and_its_objects_are_moved_to_it() -> None:
    [moved] = rollout_objects([ROLLOUT])
    assert moved["metadata"]["namespace"] == "local"
    assert moved["spec"]["flagSetRef"] == {"name": "flags"}
    other = rollout(flagSetRef={"name": "staging"})
    with pytest.raises(Stalled, match=r"several flag sets \(production, staging\)"):
        rollout_objects([ROLLOUT, other])
    with pytest.raises(Stalled, match="no FlagRollout"):
        rollout_objects([template(1), {**ROLLOUT, "apiVersion": "example.com/v1"}])


def test_secrets_of_a_file_are_read_in_both_forms() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}}
    both = {**secret, "data": {"a": "MQ=="}, "stringData": {"token": "2"}}
    assert secrets_of([both, ROLLOUT]) == {"token": {"a": b"1", "token": b"2"}}
    with pytest.raises(Stalled, match="data of Secret token is no base64"):
        secrets_of([{**secret, "data": {"a": "%"}}])
    with pytest.raises(Stalled, match="stringData of Secret token must be fields"):
        secrets_of([{**secret, "stringData": ["a"]}])
