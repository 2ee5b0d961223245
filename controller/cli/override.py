"""`flagstaff override`: sets one flag by hand for a while, lists what is set, and ends it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagset, flagshard
from controller.api.featureflagconfiguration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.kinds import (
    FEATURE_FLAG,
    FEATURE_FLAG_CONFIGURATION,
    FLAG_OVERRIDE,
    FLAG_ROLLOUT,
    FLAG_SET,
    FLAG_SHARD,
)
from controller.api.meta import Resource
from controller.cli.arguments import seconds
from controller.cli.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.effects import TIMEOUT, add_effect_arguments, follow_effect, report
from controller.cli.printing import OK, PROBLEM, USAGE, Exit, columns
from controller.delivery.delivered import Delivered, delivery_of
from controller.delivery.overrides import override_of, set_name, targets_of
from controller.delivery.progress_words import (
    digests_of,
    effect_of,
    end_of_idle,
    flag_text,
    served_of,
    unfit_text,
)
from controller.delivery.rollouts import PROGRESS_INDEXES, PromotedSets, progress_of
from controller.kube.answers import path_of
from controller.runtime.cache import Cache
from controller.runtime.clock import now
from controller.runtime.setbacks import Setback
from evaluator.flags.overrides import Override, misfit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from controller.cli.connection import ClusterConnection
    from controller.delivery.actions import Effect
    from evaluator.flags.model import FlagSet


async def require_fit(connection: ClusterConnection, asked: Resource) -> None:
    """Raise Exit for an override that fits no object: there is no such set, flag or variant, or its audience
    is wrong. What the user may not read is left to the controller.
    """
    with contextlib.suppress(Setback):
        delivered = await _read_deliveries(connection, asked, overridden=False)
        if not delivered:
            raise await _missing_set(connection, set_name(asked))
        override = override_of(asked)
        faults = [_fault(override, one.flag_set) for one in delivered]
        if all(faults):
            raise Exit(f"{faults[0]}; --force sets it all the same", PROBLEM)


def _fault(override: Override, flag_set: FlagSet) -> str:
    flag = flag_set.flags.get(override.flag)
    unfit = misfit(flag, override, flag_set.evaluators)
    return "" if unfit is None else unfit_text(unfit, override, flag, flag_set.flags)


async def _missing_set(connection: ClusterConnection, name: str) -> Exit:
    types = (FLAG_SET, FEATURE_FLAG_CONFIGURATION, FEATURE_FLAG)
    return Exit(
        f"no FlagSet, FeatureFlagConfiguration or FeatureFlag {name} has flags in namespace "
        f"{connection.namespace}{await connection.hint(name, *types)}; --force sets it all the same",
        PROBLEM,
    )


async def set_override(connection: ClusterConnection, manifest: dict[str, Any], seconds: float) -> Effect:
    """Write an override, and follow what comes of it for so many seconds. Raises Setback."""
    asked = Resource.of(manifest)
    before = await _targets(connection, asked)
    path = path_of(FLAG_OVERRIDE.api_version, FLAG_OVERRIDE.kind, connection.namespace, asked.name)
    # Forced: in an incident, what somebody else has set there is replaced.
    await connection.apply(path, manifest, force=True)

    async def look() -> Effect:
        override = await connection.get(FLAG_OVERRIDE, asked.name)
        return effect_of(override, await _again(connection, before), digests_of(before))

    return await follow_effect(look, seconds)


async def end_override(connection: ClusterConnection, name: str, seconds: float) -> Effect:
    """Delete an override, follow its end for so many seconds, and say what the flag is now. Raises Exit,
    Setback.
    """
    override = await connection.get(FLAG_OVERRIDE, name)
    before = await _targets(connection, override)
    await connection.cluster.delete(
        override.api_version, override.key.kind, override.namespace, override.name, uid=override.uid
    )
    if (idle := end_of_idle(override)) is not None:
        return idle

    async def look() -> Effect:
        return served_of(await _again(connection, before), digests_of(before))

    effect = await follow_effect(look, seconds)
    with contextlib.suppress(Setback):
        for one in await _read_deliveries(connection, override, overridden=True):
            text = flag_text(str(override.spec.get("flag")), one.flag_set)
            return replace(effect, message=f"{text}; {effect.message}")
    return effect


async def _again(connection: ClusterConnection, targets: Sequence[Resource]) -> list[Resource]:
    """Return the objects as they are now; without those that are gone."""
    types = {type_.kind: type_ for type_ in (FEATURE_FLAG_CONFIGURATION, FEATURE_FLAG)}
    found = [
        await connection.find(types[target.key.kind], target.namespace, target.name) for target in targets
    ]
    return [target for target in found if target is not None]


async def _targets(connection: ClusterConnection, override: Resource) -> list[Resource]:
    """Return the objects with the flag that count who serves them; none where the user may not read them."""
    objects = Cache(PROGRESS_INDEXES)
    with contextlib.suppress(Setback):
        await _read_targets(connection, override, objects)
    return _served_targets(objects, override)


async def _read_targets(connection: ClusterConnection, override: Resource, objects: Cache) -> None:
    names = [set_name(override)]
    flag_set = await connection.find(FLAG_SET, connection.namespace, names[0])
    if flag_set is not None:
        names.append(flagset.target_name(flag_set))
    for name in dict.fromkeys(names):
        for type_ in (FEATURE_FLAG_CONFIGURATION, FEATURE_FLAG):
            found = await connection.find(type_, connection.namespace, name)
            if found is not None:
                objects.put(found)


def _served_targets(objects: Cache, override: Resource) -> list[Resource]:
    """Return the objects with the flag. A FeatureFlag beside a FeatureFlagConfiguration is not delivered."""
    targets = targets_of(objects, override)
    names = {target.name for target in targets if target.key.kind == FEATURE_FLAG_CONFIGURATION.kind}
    return [
        target
        for target in targets
        if target.key.kind == FEATURE_FLAG_CONFIGURATION.kind or target.name not in names
    ]


async def _read_deliveries(
    connection: ClusterConnection, override: Resource, *, overridden: bool
) -> list[Delivered]:
    """Return what is delivered of each object with the flag, with overrides or without. Raises Setback."""
    objects = Cache(PROGRESS_INDEXES)
    await _read_targets(connection, override, objects)
    targets = _served_targets(objects, override)
    kinds = (FLAG_SHARD, FLAG_ROLLOUT, *((FLAG_OVERRIDE,) if overridden else ()))
    for resource in await connection.resources(*kinds) if targets else ():
        objects.put(resource)
    delivered = []
    for target in targets:
        progress = progress_of(objects, target, now().timestamp(), PromotedSets(objects.get))
        with contextlib.suppress(InvalidSpecError, MissingShardsError):
            delivered.append(delivery_of(target, flagshard.finder(objects.get, target.namespace), progress))
    return delivered


_HEADINGS: Final = (
    "NAME", "SET", "FLAG", "VALUE", "STATE", "HIDES", "COMES BACK", "EXPIRES", "BY", "REASON",
)  # fmt: skip
_NAME: Final = 100
"""Most characters of a name that is made of a flag's key."""


def configure_override(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs below it."""
    verbs = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    set_ = verbs.add_parser("set", help="set a flag", description="Set a flag by hand for a while.")
    set_.add_argument(
        "what", metavar="SET/FLAG[=VARIANT]", help="a flag of a set, and the variant that it has meanwhile"
    )
    set_.add_argument("--disabled", action="store_true", help="disable the flag, in place of a variant")
    set_.add_argument("--reason", required=True, metavar="TEXT", help="why; every answer of the flag says it")
    set_.add_argument(
        "--for", required=True, type=seconds, dest="duration", metavar="TIME",
        help="how long, such as 2h; it ends by itself",
    )  # fmt: skip
    set_.add_argument("--audience", metavar="RULE", help="JSONLogic: only where it is true of the context")
    set_.add_argument("--name", metavar="NAME", help="the FlagOverride's name (default: of set and flag)")
    set_.add_argument(
        "--force", action="store_true", help="set it also where there is no such set, flag or variant"
    )
    set_.set_defaults(run=run_set)
    list_ = verbs.add_parser("list", help="list what is set", description="List what is set, and by whom.")
    list_.set_defaults(run=run_list)
    end = verbs.add_parser("end", help="end an override now", description="End an override now.")
    end.add_argument("name", metavar="NAME", help="the FlagOverride's name")
    end.set_defaults(run=run_end)
    for verb in (set_, end):
        add_effect_arguments(verb)
        add_cluster_arguments(verb, timeout=TIMEOUT)
    add_cluster_arguments(list_, lists=True)


def run_set(options: argparse.Namespace) -> int:
    """0: it is served; 1: no such set, flag or variant, or not in time; 2 wrong usage; 3 no cluster."""
    from evaluator.host.times import timestamp

    spec = {**_spec(options), "expiresAt": timestamp(now() + timedelta(seconds=options.duration))}
    if problems := FLAG_OVERRIDE.validate(spec):
        raise Exit("; ".join(map(str, problems)), USAGE)
    name = options.name or default_name(spec["flagSetRef"]["name"], spec["flag"])
    effect = run_on_cluster(lambda: _set(options, name, spec), verb="changed")
    code = _report(options, effect, f"FlagOverride/{name}", "written")
    print(f"it ends at {spec['expiresAt']}; to end it sooner: flagstaff override end {name}")
    return code


def run_list(options: argparse.Namespace) -> int:
    """0 listed; 1 no such namespace; 3 no cluster."""
    resources = run_on_cluster(lambda: _resources(options), doing="reading the cluster")
    if not resources:
        print("no overrides")
        return OK
    spaced = options.all_namespaces
    rows = [
        ((resource.namespace,) if spaced else ()) + override_row(resource, resources)
        for resource in resources
    ]
    print("\n".join(columns([(("NAMESPACE",) if spaced else ()) + _HEADINGS, *rows])))
    return OK


def run_end(options: argparse.Namespace) -> int:
    """0: evaluators serve the flag without it; 1: no such override, or it is served yet; 3 no cluster, or it
    refuses.
    """
    effect = run_on_cluster(lambda: _end(options), verb="changed")
    return _report(options, effect, f"FlagOverride/{options.name}", "deleted")


def _report(options: argparse.Namespace, effect: Effect, override: str, written: str) -> int:
    """Print what was reached, and return the exit code."""
    if not options.wait:
        print(f"{override}: {written}; whether it has an effect was not waited for")
        return OK
    return report(f"{override} {written}", effect, options.timeout)


def default_name(flag_set: str, flag: str) -> str:
    """The name of the override of a flag: the same each time, so that setting it again replaces it."""
    plain = re.sub(r"[^a-z0-9]+", "-", flag.lower())[:_NAME].strip("-")
    if plain != flag:
        plain = f"{plain}-{hashlib.sha256(flag.encode()).hexdigest()[:6]}".lstrip("-")
    return f"{flag_set}.{plain}"


def override_row(resource: Resource, listed: Iterable[Resource] = ()) -> tuple[str, ...]:
    """The cells of one FlagOverride, whatever stands in it. `listed`: all, among them those that it hides."""
    from controller.api.flagoverride import SET_BY, FlagOverrideStatus
    from controller.delivery.overrides import hidden_by

    spec, status = resource.spec, FlagOverrideStatus.of(resource)
    value = "disabled" if spec.get("disabled") else str(spec.get("variant", "-"))
    if spec.get("audience") is not None:
        value += " (audience)"
    expires, reason = (str(spec.get(field, "-")) for field in ("expiresAt", "reason"))
    hidden = ", ".join(hidden_by(resource, listed)) or "-"
    return (
        resource.name, set_name(resource), str(spec.get("flag", "-")), value, status.state or "-", hidden,
        status.hides or "-", expires, resource.annotations.get(SET_BY, "-"), reason,
    )  # fmt: skip


def _spec(options: argparse.Namespace) -> dict[str, Any]:
    flag_set, slash, flag = options.what.partition("/")
    variant: str | None = None
    if not options.disabled:
        flag, equals, variant = flag.rpartition("=")
        slash = slash if equals else ""
    if not (flag_set and slash and flag):
        raise Exit("write SET/FLAG=VARIANT, such as checkout/new-checkout=off, or SET/FLAG --disabled", USAGE)
    spec: dict[str, Any] = {"flagSetRef": {"name": flag_set}, "flag": flag, "reason": options.reason}
    spec |= {"disabled": True} if options.disabled else {"variant": variant}
    if options.audience is not None:
        try:
            spec["audience"] = json.loads(options.audience)
        except ValueError as error:
            raise Exit(f"--audience is not JSON: {error}", USAGE) from None
    return spec


async def _set(options: argparse.Namespace, name: str, spec: dict[str, Any]) -> Effect:
    # Imported here: it takes a second or two.
    from controller.cli.connection import open_connection

    async with open_connection(scope_of(options)) as connection:
        manifest = {
            "apiVersion": FLAG_OVERRIDE.api_version,
            "kind": FLAG_OVERRIDE.kind,
            "metadata": {"name": name, "namespace": connection.namespace},
            "spec": spec,
        }
        if not options.force:
            await require_fit(connection, Resource.of(manifest))
        return await set_override(connection, manifest, _timeout(options))


async def _end(options: argparse.Namespace) -> Effect:
    from controller.cli.connection import open_connection

    async with open_connection(scope_of(options)) as connection:
        return await end_override(connection, options.name, _timeout(options))


def _timeout(options: argparse.Namespace) -> float:
    return float(options.timeout) if options.wait else 0.0


async def _resources(options: argparse.Namespace) -> list[Resource]:
    from controller.cli.connection import open_connection

    async with open_connection(scope_of(options)) as connection:
        return await connection.resources(FLAG_OVERRIDE)
