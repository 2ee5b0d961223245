"""`flagstaff override`: sets one flag by hand for a while, lists what is set, and ends it."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from controller.cli.cluster.effects import TIMEOUT, add_effect_arguments, report
from controller.cli.shared.arguments import seconds
from controller.cli.shared.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.shared.ending import OK, USAGE, Exit
from controller.cli.shared.printing import columns

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from controller.api.objects.meta import Resource
    from controller.delivery.state.effect import Effect

_HEADINGS: Final = (
    "NAME", "SET", "FLAG", "VALUE", "STATE", "HIDES", "COMES BACK", "EXPIRES", "BY", "REASON",
)  # fmt: skip
_NAME: Final = 100
"""Most characters of a name that is made of a flag's key."""


def configure(parser: argparse.ArgumentParser) -> None:
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
    from controller.api.kinds import FLAG_OVERRIDE
    from controller.api.objects.meta import timestamp
    from controller.runtime.clock import now

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
    from controller.delivery.progress.overrides import hidden_by, set_name

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
    from controller.api.kinds import FLAG_OVERRIDE
    from controller.api.objects.meta import Resource
    from controller.cli.actions.override_run import require_fit, set_override
    from controller.cli.cluster.connection import open_connection

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
    from controller.cli.actions.override_run import end_override
    from controller.cli.cluster.connection import open_connection

    async with open_connection(scope_of(options)) as connection:
        return await end_override(connection, options.name, _timeout(options))


def _timeout(options: argparse.Namespace) -> float:
    return float(options.timeout) if options.wait else 0.0


async def _resources(options: argparse.Namespace) -> list[Resource]:
    from controller.api.kinds import FLAG_OVERRIDE
    from controller.cli.cluster.connection import open_connection

    async with open_connection(scope_of(options)) as connection:
        return await connection.resources(FLAG_OVERRIDE)
