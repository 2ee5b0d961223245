"""Who serves the flags of `flagstaff up`, as it counts them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.local.commits import open_backend
from controller.local.local_events import RevisionBuilt, RolloutHappened
from controller.local.local_fleet import FleetTokens
from controller.local.local_options import LocalOptions
from controller.local.local_stages import stages_of
from controller.proxy.receipt_service import fleet
from controller.runtime.setbacks import Stalled
from evaluator.flags.model import DIGEST_KEY
from evaluator.http.messages import Call, Code, RpcError
from evaluator.wire.delivery import MARK, REPORT
from evaluator.wire.delivery_pb2 import Member, ReportRequest
from tests.repositories import Repository
from tests.unit.controller.local.test_local_rollouts import rollout
from tests.waiting import until
from tests.worlds.evaluator import answer_of
from tests.worlds.flagsets import flag

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from controller.local.local_stages import LocalStages
    from evaluator.flags.model import FlagSet

OLD = "sha256:" + "0" * 64


def pay(default: str) -> str:
    return json.dumps({"flags": {"pay": flag(defaultVariant=default)}})


@dataclass
class Up:
    """Stages that run, and who reports to them."""

    stages: LocalStages
    events: AsyncIterator[Any]
    digest: str = ""
    """Of what is served."""

    async def serve(self, flag_set: FlagSet, digest: str) -> None:
        """Implements `Serve`."""
        assert flag_set.metadata[DIGEST_KEY] == digest
        self.digest = digest

    def report(
        self, name: str, digest: str, *, bearer: str = "", client: str = "", selector: str = ""
    ) -> None:
        headers = (("authorization", f"Bearer {bearer}"),) if bearer else ()
        request = ReportRequest(member=Member(instance=name), digest=digest, selector=selector)
        receipts = self.stages.fleet.receipts
        answer_of(receipts.report(Call(REPORT, headers, "10.0.0.1:1", client), request.SerializeToString()))

    @property
    def members(self) -> dict[str, tuple[bool, bool]]:
        """(verified, lagging) by name."""
        shown = fleet(self.stages.fleet.receipts)["flagSets"]
        members = shown[0]["members"] if shown else ()
        return {member["name"]: (member["verified"], member["lagging"]) for member in members}

    @property
    def status(self) -> ConfigurationStatus:
        (served,) = self.stages.objects.of_kind("FeatureFlagConfiguration")
        return ConfigurationStatus.of(served)

    async def counted(self, served: str) -> ConfigurationStatus:
        """The status, once it says that so many evaluators serve the set."""
        await until(lambda: self.status.served == served, poll=0.02)
        return self.status

    async def built(self) -> None:
        """Until a revision is built."""
        async with asyncio.timeout(30):
            async for event in self.events:
                if isinstance(event, RevisionBuilt):
                    return

    async def happened(self, reason: str) -> None:
        """Until a rollout has an Event of this reason."""
        async with asyncio.timeout(30):
            async for event in self.events:
                if isinstance(event, RolloutHappened) and event.reason == reason:
                    return


@contextlib.asynccontextmanager
async def up(options: LocalOptions) -> AsyncIterator[Up]:
    """The stages of `options`, which serve their first revision."""
    served = Up(cast("Any", None), cast("Any", None))
    async with (
        open_backend(options) as (source, folder),
        stages_of(options, source, folder, contextlib.nullcontext, served.serve) as stages,
    ):
        served.stages, served.events = stages, stages.events()
        await stages.restore()
        task = asyncio.create_task(stages.run())
        try:
            await served.built()
            yield served
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit(flags__json=pay("off"))
    return made


@pytest.fixture
def options(repository: Repository) -> LocalOptions:
    return LocalOptions(str(repository.path))


async def test_this_process_and_each_evaluator_that_reports_are_counted(options: LocalOptions) -> None:
    async with up(options) as running:
        await running.counted("1/1")
        running.report("vm-1", running.digest)
        running.report("vm-2", OLD)
        status = await running.counted("2/3")
    assert running.members == {"this process": (True, False), "vm-1": (False, False), "vm-2": (False, True)}
    assert [laggard.name for laggard in status.laggards or ()] == ["vm-2"]


async def test_a_stream_of_one_that_sends_no_receipts_is_counted_until_it_ends(options: LocalOptions) -> None:
    async with up(options) as running:
        fleet_of_up, stream = running.stages.fleet, Call("/flagd.sync.v1", (), "10.0.0.1:1")
        provider = fleet_of_up.begin(stream, "", lasting=True)
        marked = fleet_of_up.begin(Call(stream.path, ((MARK, "1"),), stream.peer), "", lasting=True)
        once = fleet_of_up.begin(stream, "", lasting=False)
        assert fleet(fleet_of_up.receipts)["flagSets"][0]["delivered"] == 1
        for visit in (provider, marked, once):
            fleet_of_up.end(visit)
        assert fleet(fleet_of_up.receipts)["flagSets"][0]["delivered"] == 0


async def test_an_evaluator_that_follows_a_part_of_the_set_is_not_counted(options: LocalOptions) -> None:
    async with up(options) as running:
        running.report("vm-1", OLD, selector="flagSetId=checkout")
        assert running.members == {"this process": (True, False)}


async def test_what_the_command_line_overrides_is_the_set_that_is_counted(options: LocalOptions) -> None:
    async with up(options) as running:
        running.stages.fleet.digest_behind = {"sha256:overridden": running.digest}.__getitem__
        running.report("vm-1", "sha256:overridden")
        await running.counted("2/2")


async def test_a_step_of_a_rollout_waits_until_the_evaluators_serve_it(
    options: LocalOptions, repository: Repository
) -> None:
    stepped = replace(options, rollouts=(rollout(steps=[{"share": 10}, {"share": 50}]),))
    async with up(stepped) as running:
        running.report("vm-1", running.digest)
        await running.counted("2/2")
        repository.commit(flags__json=pay("on"))
        await running.happened("RolloutStarted")
        advanced = asyncio.create_task(running.happened("StepAdvanced"))
        await running.counted("1/2")
        done, _ = await asyncio.wait([advanced], timeout=1.5)
        assert not done
        running.report("vm-1", running.digest)
        await advanced


async def test_after_a_restart_a_step_waits_until_evaluators_had_time_to_connect(
    options: LocalOptions, repository: Repository, tmp_path: Path
) -> None:
    steps = rollout(steps=[{"share": 10}, {"share": 50}])
    stepped = replace(options, rollouts=(steps,), state_dir=tmp_path / "state")
    async with up(stepped) as running:
        running.report("vm-1", running.digest)
        await running.counted("2/2")
        repository.commit(flags__json=pay("on"))
        await running.happened("RolloutStarted")
        await running.counted("1/2")
        step = running.digest
    async with up(stepped) as again:
        advanced = asyncio.create_task(again.happened("StepAdvanced"))
        done, _ = await asyncio.wait([advanced], timeout=2)
        assert not done
        again.report("vm-1", OLD)
        await again.counted("1/3")
        await again.counted("1/2")
        assert not advanced.done()
        again.report("vm-1", step)
        await advanced


async def test_a_token_proves_the_name_that_its_line_has(options: LocalOptions, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# of the shop\nvm-1 secret-1\n\nshared\n")
    async with up(replace(options, tokens=file)) as running:
        running.report("liar", running.digest, bearer="secret-1")
        running.report("vm-2", running.digest, bearer="shared")
        running.report("vm-3", running.digest, bearer="shared", client="vm-3.example.com")
        for token in ("", "wrong"):
            with pytest.raises(RpcError) as refused:
                running.report("vm-4", running.digest, bearer=token)
            assert refused.value.code is Code.UNAUTHENTICATED
        with pytest.raises(RpcError):
            running.stages.fleet.begin(Call("/flagd.sync.v1", (), "10.0.0.1:1"), "", lasting=True)
        assert running.members == {
            "this process": (True, False), "vm-1": (True, False), "vm-2": (False, False),
            "vm-3.example.com": (True, False),
        }  # fmt: skip


async def test_the_name_in_a_certificate_is_the_member_s(options: LocalOptions) -> None:
    async with up(options) as running:
        running.report("liar", running.digest, client="vm-1.example.com")
        assert running.members["vm-1.example.com"] == (True, False)


def test_tokens_that_change_are_read_again_and_bad_ones_leave_the_earlier_valid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tokens"
    file.write_text("vm-1 first\n")
    tokens = FleetTokens(file)
    file.write_text("vm-1 second\n")
    tokens.refresh()
    assert (tokens.name_of("first"), tokens.name_of("second")) == (None, "vm-1")
    for text in ("vm-1 a b\n", "vm-1 a\nvm-2 a\n", "", "vm-1 ü\n"):
        file.write_text(text)
        tokens.refresh()
        tokens.refresh()
        assert tokens.name_of("second") == "vm-1"
    file.unlink()
    tokens.refresh()
    assert tokens.name_of("second") == "vm-1"
    assert caplog.text.count("stay valid") == 5
    with pytest.raises(Stalled, match="cannot be read"):
        FleetTokens(file)
