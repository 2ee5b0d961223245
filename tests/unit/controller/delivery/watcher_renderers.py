"""What the page, `flagstaff up`, alerts, Git servers and Argo CD tell of a world."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.api import flagrollout, flagset
from controller.api.featureflagconfiguration import FeatureFlagStatus
from controller.api.flagalert import FlagAlertSpec
from controller.api.flagrollout import FlagRolloutSpec
from controller.api.rollout_status import FlagRolloutStatus
from controller.cli.up import TextReport
from controller.delivery.actions import in_cluster, in_file
from controller.delivery.progress_words import override_condition, rollout_condition
from controller.delivery.set_state import Where
from controller.delivery.state_words import override_text
from controller.events.alert_selection import Alert
from controller.events.alert_stage import FLAG_ALERTS
from controller.events.flag_set_progress import commit_states, state_name
from controller.local.local_events import RolloutHappened
from controller.page.page_source import ShownSet
from controller.rollouts.gates import advice, held_text
from controller.rollouts.observation import Asked, Tick
from evaluator.resolving.resolve import compile_flag_set
from tests import argocd
from tests.worlds.delivery import NOW
from tests.worlds.events import alert as flag_alert
from tests.worlds.objects import cache_of
from tests.worlds.page import FakeSource, ask, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from controller.api.meta import Resource
    from controller.api.rollout_status import CandidateStatus
    from tests.worlds.delivery import Fields, World

Told = tuple[int | None, str]
ALERT: Final = Alert(flag_alert(), FlagAlertSpec.model_validate(flag_alert().spec))


def shown_set(world: World) -> ShownSet:
    """The set of a world as the page shows it."""
    state = world.state
    return ShownSet(
        f"{state.key.namespace}/{state.key.name}", world.desired_flags(),
        compile_flag_set(world.served_flags()), state.revision, state.address, state=state,
    )  # fmt: skip


def page(world: World, view: str) -> Told:
    """The words of one view of the page."""
    shown = [] if world.target is None else [shown_set(world)]
    source = FakeSource(shown, resources=world.objects, where=world.where)
    main = text(ask(source, f"/ui/{view}")).partition('<main id="main" tabindex="-1">')[2]
    kept = re.sub(r"<form.*?</form>|<thead>.*?</thead>", "", main.partition("</main>")[0], flags=re.DOTALL)
    parted = re.sub(r"<(?=/?(?:p|li|pre|td|h[1-3])\b)", "\n<", kept)
    lines = (" ".join(line.split()) for line in re.sub(r"<[^>]*>", " ", parted).splitlines())
    return None, "\n".join(filter(None, lines))


def page_flags(world: World) -> Told:
    """The list of flags."""
    return page(world, "flags") if world.target is not None else (None, "")


def page_flag(world: World) -> Told:
    """The flag `banner`."""
    return page(world, "flag?key=banner") if world.target is not None else (None, "")


def page_delivery(world: World) -> Told:
    """The way of the newest commit."""
    return page(world, "delivery")


def page_pending(world: World) -> Told:
    """What waits."""
    return page(world, "pending")


def held_candidates(world: World) -> Iterator[tuple[str, CandidateStatus, str]]:
    """Yield (name of the FlagRollout, candidate, what its Event says) of each candidate that is held."""
    advise = in_file if world.where is Where.LOCAL else in_cluster
    for resource in world.objects:
        if resource.key.kind != flagrollout.KIND:
            continue
        spec = FlagRolloutSpec.model_validate(dict(resource.spec))
        tick = Tick(spec, NOW, resource.key, Asked(), advise=advise)
        for candidate in FlagRolloutStatus.of(resource).candidates:
            if candidate.reason is not None and candidate.phase != "Failed":
                yield resource.name, candidate, f"{held_text(candidate)}; {advice(candidate, tick)}"


def alerts(world: World) -> Told:
    """The messages of alerts about candidates that are held."""
    told = (f"{one.reason}: {words}" for _, one, words in held_candidates(world))
    return None, "\n".join(told) if world.where is Where.CLUSTER else ""


def up_log(world: World) -> Told:
    """What `flagstaff up` prints of candidates that are held."""
    out = io.StringIO()
    for name, one, words in held_candidates(world) if world.where is Where.LOCAL else ():
        TextReport(out).event(
            RolloutHappened(name, one.reason or "", words, warning=False, candidate=one.digest)
        )
    return None, out.getvalue()


def with_repeated(world: World, resource: Resource) -> Resource:
    """The object with the conditions that say who serves it and what keeps flags from users."""
    target, state = world.target, world.state
    about_flags = target is not None and resource.key in {state.writer, target.key}
    if target is None or not about_flags or not state.digests.agree or not state.processed:
        return resource
    entries = FeatureFlagStatus.of(target).rollouts or ()
    overridden = {layer.flag for layer in state.overrides}
    layers = (
        *rollout_condition(entries, overridden=overridden),
        *override_condition([override_text(layer) for layer in state.overrides]),
    )
    told = [(one.type, "True", one.reason, one.message) for one in layers]
    served = state.served
    if served.total is not None:
        status = "Unknown" if not served.total else "False" if served.lagging else "True"
        told.append(("Propagated", status, "Served", f"{served.count} of {served.total} evaluators serve it"))
    names = ("type", "status", "reason", "message")
    repeated = [dict(zip(names, values, strict=True)) for values in told]
    known = [*resource.status.get("conditions", ()), *repeated]
    return replace(resource, status={**resource.status, "conditions": known})


def commit_status(world: World) -> Told:
    """The status of the commit on a Git server."""
    objects = cache_of(*world.objects, stages=(FLAG_ALERTS,))
    for resource in world.objects:
        if resource.key.kind == flagset.KIND:
            told, _ = commit_states(objects, with_repeated(world, resource), "", ALERT, NOW)
            if told:
                return None, f"{state_name(told[0])}: {told[0].message}"
    return None, ""


def argo_health(world: World) -> Told:
    """The health of each object in Argo CD."""
    lines = []
    for resource in (with_repeated(world, one) for one in world.objects):
        health = argocd.run("health.lua", _body(resource))
        lines.append(f"{resource.key.kind}: {health['status']}: {health['message']}")
    return None, "\n".join(lines)


def _body(resource: Resource) -> Fields:
    metadata = {"name": resource.name, "generation": resource.generation}
    status = {"conditions": [], **resource.status}
    return {"kind": resource.key.kind, "metadata": metadata, "spec": dict(resource.spec), "status": status}


WATCHERS: Final[Mapping[str, Callable[[World], Told]]] = {
    "page: flags": page_flags,
    "page: flag": page_flag,
    "page: delivery": page_delivery,
    "page: pending": page_pending,
    "alerts": alerts,
    "up": up_log,
    "commit status": commit_status,
    "Argo CD": argo_health,
}
