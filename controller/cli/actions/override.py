"""`flagstaff override`: sets one flag by hand for a while, lists what is set, and ends it."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from controller.cli.shared.arguments import seconds
from controller.cli.shared.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.shared.ending import OK, USAGE, Exit
from controller.cli.shared.printing import columns

if TYPE_CHECKING:
    import argparse

    from controller.api.objects.meta import Resource

_HEADINGS: Final = ("NAME", "SET", "FLAG", "VALUE", "STATE", "EXPIRES", "BY", "REASON")
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
    set_.set_defaults(run=run_set)
    list_ = verbs.add_parser("list", help="list what is set", description="List what is set, and by whom.")
    list_.set_defaults(run=run_list)
    end = verbs.add_parser("end", help="end an override now", description="End an override now.")
    end.add_argument("name", metavar="NAME", help="the FlagOverride's name")
    end.set_defaults(run=run_end)
    for verb in (set_, list_, end):
        add_cluster_arguments(verb, lists=verb is list_)


def run_set(options: argparse.Namespace) -> int:
    """0 set; 2 wrong usage; 3 no cluster, or it refuses."""
    from controller.api.kinds import FLAG_OVERRIDE
    from controller.api.objects.meta import timestamp
    from controller.runtime.clock import now

    spec = {**_spec(options), "expiresAt": timestamp(now() + timedelta(seconds=options.duration))}
    if problems := FLAG_OVERRIDE.validate(spec):
        raise Exit("; ".join(map(str, problems)), USAGE)
    name = options.name or default_name(spec["flagSetRef"]["name"], spec["flag"])
    run_on_cluster(lambda: _apply(options, name, spec), verb="changed", doing="applying")
    value = "disabled" if options.disabled else f"{spec['variant']!r}"
    print(f"FlagOverride/{name}: flag {spec['flag']!r} is {value} until {spec['expiresAt']}")
    print(f"to end it sooner: flagstaff override end {name}")
    return OK


def run_list(options: argparse.Namespace) -> int:
    """0 listed; 1 no such namespace; 3 no cluster."""
    resources = run_on_cluster(lambda: _resources(options), doing="reading the cluster")
    if not resources:
        print("no overrides")
        return OK
    spaced = options.all_namespaces
    rows = [((resource.namespace,) if spaced else ()) + override_row(resource) for resource in resources]
    print("\n".join(columns([(("NAMESPACE",) if spaced else ()) + _HEADINGS, *rows])))
    return OK


def run_end(options: argparse.Namespace) -> int:
    """0 ended; 1 no such override; 3 no cluster, or it refuses."""
    run_on_cluster(lambda: _delete(options), verb="changed", doing="deleting")
    print(f"FlagOverride/{options.name} ended")
    return OK


def default_name(flag_set: str, flag: str) -> str:
    """The name of the override of a flag: the same each time, so that setting it again replaces it."""
    plain = re.sub(r"[^a-z0-9]+", "-", flag.lower())[:_NAME].strip("-")
    if plain != flag:
        plain = f"{plain}-{hashlib.sha256(flag.encode()).hexdigest()[:6]}".lstrip("-")
    return f"{flag_set}.{plain}"


def override_row(resource: Resource) -> tuple[str, ...]:
    """The cells of one FlagOverride, whatever stands in it."""
    from controller.api.flagoverride import SET_BY, FlagOverrideStatus
    from controller.delivery.progress.overrides import set_name

    spec, status = resource.spec, FlagOverrideStatus.of(resource)
    value = "disabled" if spec.get("disabled") else str(spec.get("variant", "-"))
    if spec.get("audience") is not None:
        value += " (audience)"
    texts = (str(spec.get(field, "-")) for field in ("expiresAt", "reason"))
    expires, reason = texts
    by = resource.annotations.get(SET_BY, "-")
    state = status.state or "-"
    return resource.name, set_name(resource), str(spec.get("flag", "-")), value, state, expires, by, reason


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


async def _apply(options: argparse.Namespace, name: str, spec: dict[str, Any]) -> None:
    # Imported here: it takes a second or two.
    from controller.api.kinds import FLAG_OVERRIDE
    from controller.cli.cluster.connection import open_connection
    from controller.kube.paths import path_of

    async with open_connection(scope_of(options)) as connection:
        kind = {"apiVersion": FLAG_OVERRIDE.api_version, "kind": FLAG_OVERRIDE.kind}
        metadata = {"name": name, "namespace": connection.namespace}
        path = path_of(FLAG_OVERRIDE.api_version, FLAG_OVERRIDE.kind, connection.namespace, name)
        # Forced: in an incident, what somebody else has set there is replaced.
        await connection.apply(path, {**kind, "metadata": metadata, "spec": spec}, force=True)


async def _resources(options: argparse.Namespace) -> list[Resource]:
    from controller.api.kinds import FLAG_OVERRIDE
    from controller.cli.cluster.connection import open_connection

    async with open_connection(scope_of(options)) as connection:
        return await connection.resources(FLAG_OVERRIDE)


async def _delete(options: argparse.Namespace) -> None:
    from controller.api.kinds import FLAG_OVERRIDE
    from controller.cli.cluster.connection import open_connection

    async with open_connection(scope_of(options)) as connection:
        override = await connection.get(FLAG_OVERRIDE, options.name)
        await connection.cluster.delete(
            override.api_version, override.key.kind, override.namespace, override.name, uid=override.uid
        )
