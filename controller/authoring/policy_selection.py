"""Which FlagPolicies judge a flag set, and what stands between its definitions and users. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.api import flagoverride, flagpolicy, flagrollout
from controller.authoring.policies import Circumstances
from controller.delivery.overrides import in_force, set_name
from controller.delivery.rollouts import rollouts_of_set
from evaluator.flags.candidates import matches

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from controller.api.meta import Resource
    from controller.runtime.cache import Cache


def circumstances_of(
    objects: Cache, target: Resource, names: Collection[str], home: str, now: datetime
) -> Circumstances:
    """How a change of the flags of `target` comes at `now`, but for its author and signer. `names`: those by
    which FlagRollouts and FlagOverrides refer to it; `home`: our own namespace.
    """
    namespace = target.namespace
    overrides = (
        override for override in objects.of_kind(flagoverride.KIND, namespace) if set_name(override) in names
    )
    forced = in_force(overrides, now.timestamp())
    rollouts = rollouts_of_set(objects.of_kind(flagrollout.KIND, namespace), names)
    policies = (policy for place in {home, namespace} for policy in objects.of_kind(flagpolicy.KIND, place))
    return Circumstances(
        now,
        rollouts=[(rollout.name, read.flags) for rollout, read in rollouts],
        # Of several for one flag the oldest decides.
        overrides={override.flag: override.name for override in reversed(forced)},
        given=selected_policies(policies, target, home),
    )


def selected_policies(
    policies: Iterable[Resource], target: Resource, home: str
) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """The names and specs of the FlagPolicies among `policies` that judge the flags of `target`: those beside
    it, and those of `home`, our own namespace, that select it. One whose selection cannot be read judges all.
    """
    found = {
        f"{policy.namespace}/{policy.name}": policy.spec
        for policy in policies
        if _has_labels(target, policy.spec.get("selector"))
        and (
            policy.namespace == target.namespace
            if policy.namespace != home
            else _is_named(target.namespace, policy.spec.get("namespaces"))
        )
    }
    return tuple((name, found[name]) for name in sorted(found))


def _has_labels(target: Resource, selector: object) -> bool:
    wanted = selector.get("matchLabels") if isinstance(selector, dict) else None
    return not isinstance(wanted, dict) or wanted.items() <= target.labels.items()


def _is_named(namespace: str, patterns: object) -> bool:
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        return True
    return not patterns or matches(patterns, namespace)
