"""What each front end tells of a world: a function each, so that all of them are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import flagrollout, flagset
from controller.api.featureflagconfiguration import FeatureFlagStatus
from controller.cli import rollout_view
from controller.cli.cluster_view import Waited
from controller.cli.description import state_sections
from controller.cli.flag_trace import FlagTrace, as_text
from controller.cli.flags import lines as flag_lines
from controller.cli.object_rows import columns_of, flag_rows, object_row
from controller.cli.object_tree import object_tree
from controller.cli.output import table
from controller.cli.printing import short
from controller.cli.reconcile_stages import delivery_stage
from controller.cli.suspend import kept_text
from controller.cli.trace import with_state
from controller.cli.wait import answer
from controller.delivery.flag_state import flag_states
from controller.delivery.progress_words import override_condition, override_texts, rollout_condition
from controller.delivery.reach import ReachTarget, reach
from controller.delivery.rollout_state import rollout_state
from controller.delivery.set_reading import by_member
from tests.unit.controller.delivery.watcher_renderers import WATCHERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from controller.cli.object_tree import TreeNode
    from tests.worlds.delivery import World

Told = tuple[int | None, str]
"""(the exit code, where it depends on the state; the text)."""


def get(world: World) -> Told:
    """`flagstaff get all`, of what is about the set."""
    states = by_member([world.state])
    rows = [object_row(one, states.get(one.key)) for one in world.objects]
    return None, table(
        columns_of("all", lambda _: None, namespaced=False, clusters=False), rows, rows="objects"
    )


def get_flags(world: World) -> Told:
    """`flagstaff get flags`."""
    targets = [] if world.target is None else [world.target]
    rows = flag_rows(targets, lambda _: None, by_member([world.state]))
    return None, table(
        columns_of("flags", lambda _: None, namespaced=False, clusters=False), rows, rows="flags"
    )


def wait(world: World) -> Told:
    """`flagstaff wait flagset/checkout`."""
    return _wait(world, ReachTarget(world.revision))


def wait_for_everybody(world: World) -> Told:
    """`flagstaff wait flagset/checkout --for everybody`."""
    return _wait(world, ReachTarget(world.revision, everybody=True))


def _wait(world: World, wanted: ReachTarget) -> Told:
    code, lines = answer(Waited(reach(world.state, wanted), world.state), wanted, 60.0)
    return code, "\n".join(lines)


def reconcile(world: World) -> Told:
    """The last stage that `flagstaff reconcile set checkout` prints."""
    reached, stage = delivery_stage(world.state, world.revision)
    return (0 if reached.done else 1), f"{stage if reached.done else 'waits'}  {reached.message}"


def describe(world: World) -> Told:
    """What `flagstaff describe set checkout` says beside spec, conditions, history and Events."""
    return None, "\n".join(state_sections(world.state))


def tree(world: World) -> Told:
    """`flagstaff tree`."""
    roots = object_tree(world.objects, by_member([world.state]))
    return None, "\n".join(line for root in roots for line in _branch(root, 0))


def _branch(node: TreeNode, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}{node.kind}/{node.name}  {node.state}"
    for child in node.children:
        yield from _branch(child, depth + 1)


def trace(world: World) -> Told:
    """What `flagstaff trace banner` says of what is served."""
    if world.target is None:
        return None, ""
    state = flag_states(world.state, world.desired_flags())["banner"]
    rollouts = [one for one in world.objects if one.key.kind == flagrollout.KIND]
    traced = with_state(FlagTrace("banner", str(world.target.key)), state, rollouts, world.target)
    return None, "\n".join(as_text(traced))


def flags(world: World) -> Told:
    """The rollouts and overrides that `flagstaff flags` lists of an evaluator that is not behind."""
    if world.target is None:
        return None, ""
    served = world.served_flags().flags.values()
    listed = flag_lines({"flags": [{"key": flag.key, "metadata": dict(flag.metadata)} for flag in served]})
    return None, "\n".join(line for line in listed if line.startswith(("override", "rollout")))


def conditions(world: World) -> Told:
    """The conditions of the object on rollouts and overrides."""
    if world.target is None:
        return None, ""
    entries = FeatureFlagStatus.of(world.target).rollouts or ()
    progress = world.progress()
    told = override_condition(override_texts(world.served_flags(), progress))
    overridden = {override.flag for override in progress.overrides}
    rolled_out = rollout_condition(entries, overridden=overridden)
    return None, "\n".join(one.message for one in (*rolled_out, *told))


def rollout_status(world: World) -> Told:
    """`flagstaff rollout status checkout`."""
    rollouts = [one for one in world.objects if one.key.kind == flagrollout.KIND]
    return None, "\n".join(rollout_view.as_text(rollout_state(one)) for one in rollouts)


def suspend(world: World) -> Told:
    """What `flagstaff suspend` and `resume` say of the FlagSet while it is suspended."""
    sets = [one for one in world.objects if one.key.kind == flagset.KIND and one.suspended]
    return None, "\n".join(map(kept_text, sets))


RENDERERS: Final[Mapping[str, Callable[[World], Told]]] = {
    "get": get,
    "get flags": get_flags,
    "wait": wait,
    "wait --for everybody": wait_for_everybody,
    "reconcile": reconcile,
    "describe": describe,
    "tree": tree,
    "trace": trace,
    "flags": flags,
    "conditions": conditions,
    "rollout status": rollout_status,
    "suspend": suspend,
    **WATCHERS,
}
"""By name: a new front end is one more line here."""


def render_all(world: World) -> str:
    """All that is told of a world, for a file."""
    parts = []
    for name, render in RENDERERS.items():
        code, text = render(world)
        heading = f"== {name}" + ("" if code is None else f" (exit {code})")
        # Of commands, a digest that is cut short would be another one.
        lines = [line if "kubectl" in line else short(line) for line in text.splitlines()]
        parts.append("\n".join([heading, *(line.rstrip() for line in lines if line)]))
    return "\n".join(parts) + "\n"
