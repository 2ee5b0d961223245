"""Waiting for what a cluster shows."""

from __future__ import annotations

import asyncio

import pytest

from controller.api.kinds import FEATURE_FLAG_CONFIGURATION, FLAG_ROLLOUT, FLAG_SET
from controller.cli.cluster_view import ClusterView, WaitSubject, state_of
from controller.delivery.reach import ReachTarget
from tests.worlds.delivery import OLD, flag_set, rollout, set_object
from tests.worlds.stages import body_of


@pytest.mark.parametrize("steps", range(6))
async def test_a_wait_ends_when_it_is_cancelled_while_something_changes(steps: int) -> None:
    view = ClusterView(())

    async def follow() -> None:
        while True:
            await view.wait(60.0)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.01)
    view.changed.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    following.cancel()
    done, _ = await asyncio.wait({following}, timeout=1.0)
    following.cancel()
    assert done


def test_wrong_name_is_answered_with_the_name_that_is_spelled_alike() -> None:
    view = ClusterView((FLAG_SET, FEATURE_FLAG_CONFIGURATION), "shop")
    for kind in ("FlagSet", "FeatureFlagConfiguration"):
        view.informer.end_listing(kind, "shop")
    view.informer.learn("FlagSet", {"metadata": {"namespace": "shop", "name": "checkout-production"}})
    subject = WaitSubject("FlagSet", "chekout-production", ReachTarget("main@sha1:aaaaaaa"))
    assert state_of(view, "shop", subject).reached.message == (
        "FlagSet chekout-production is not in namespace shop yet; did you mean 'checkout-production'?"
    )


def test_a_wait_for_a_rollout_needs_its_flag_set() -> None:
    view = ClusterView((FLAG_SET, FEATURE_FLAG_CONFIGURATION, FLAG_ROLLOUT), "shop")
    for kind in ("FlagSet", "FeatureFlagConfiguration", "FlagRollout"):
        view.informer.end_listing(kind, "shop")
    spec = {"flagSetRef": {"name": "checkout"}}
    view.informer.learn("FlagRollout", {"metadata": {"namespace": "shop", "name": "slow"}, "spec": spec})
    subject = WaitSubject(
        "FlagRollout", "slow", ReachTarget("main@sha1:aaaaaaa", everybody=True, rollout="slow")
    )
    message = "the flag set of FlagRollout slow does not exist yet"
    assert state_of(view, "shop", subject).reached.message == message


def test_a_wait_for_a_commit_that_was_promoted_ends_well_after_another_has_replaced_it() -> None:
    view = ClusterView((FLAG_SET, FEATURE_FLAG_CONFIGURATION, FLAG_ROLLOUT), "shop")
    for kind in ("FlagSet", "FeatureFlagConfiguration", "FlagRollout"):
        view.informer.end_listing(kind, "shop")
    for resource in (flag_set(), set_object(), rollout(promotedRevisions=[OLD])):
        view.informer.learn(resource.key.kind, body_of(resource))
    answers = [
        state_of(view, "shop", WaitSubject("FlagRollout", "checkout", target)).reached.done
        for revision in (OLD, "c" * 40)
        for target in [ReachTarget(revision, everybody=True, rollout="checkout")]
    ]
    assert answers == [True, False]
