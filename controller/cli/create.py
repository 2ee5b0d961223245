"""`flagstaff create`: makes a source or a flag set, or prints its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.cli.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.effects import TIMEOUT, add_effect_arguments, follow_effect, ready_effect, report
from controller.cli.output import document
from controller.cli.printing import OK, USAGE, Exit
from controller.delivery.actions import Effect

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from controller.api.kind import ResourceType
    from controller.cli.connection import ClusterConnection

_REFERENCES: Final = ("branch", "tag", "semver", "commit")


def configure_create(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs below it."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    source = kinds.add_parser("source", help="make a FlagSource", description="Make a FlagSource.")
    providers = source.add_subparsers(dest="provider", metavar="PROVIDER", required=True)
    git = _add(providers, "git", "a FlagSource of a Git repository", _git)
    git.add_argument("--url", required=True, metavar="URL", help="https:// or ssh:// URL of the repository")
    reference = git.add_mutually_exclusive_group()
    for name in _REFERENCES:
        reference.add_argument(f"--{name}", metavar=name.upper(), help=f"the {name} to follow")
    bucket = _add(providers, "bucket", "a FlagSource of a bucket", _bucket)
    bucket.add_argument("--bucket-name", required=True, metavar="NAME", help="the bucket or container")
    bucket.add_argument("--provider", dest="cloud", metavar="CLOUD", help="aws, gcp, azure or generic")
    for name, text in (
        ("endpoint", "the store's endpoint"),
        ("region", "its region"),
        ("prefix", "a folder"),
    ):
        bucket.add_argument(f"--{name}", metavar=name.upper(), help=text)
    oci = _add(providers, "oci", "a FlagSource of an artifact in a registry", _oci)
    oci.add_argument("--url", required=True, metavar="URL", help="oci://HOST/REPOSITORY")
    version = oci.add_mutually_exclusive_group()
    for name in ("tag", "semver", "digest"):
        version.add_argument(f"--{name}", metavar=name.upper(), help=f"the {name} to follow")
    flag_set = _add(kinds, "set", "a FlagSet", _set)
    flag_set.add_argument(
        "--source", required=True, metavar="[KIND/]NAME", help="the FlagSource, or a source of another kind"
    )
    flag_set.add_argument(
        "--path", action="append", default=[], metavar="P", dest="paths", help="a layer, base first"
    )
    flag_set.add_argument("--target", metavar="NAME", help="the name of what is written (default: NAME)")
    flag_set.add_argument("--lenient", action="store_true", help="serve flags with warnings, too")


def _add(
    parsers: Any, name: str, what: str, make: Callable[[argparse.Namespace], tuple[str, dict[str, Any]]]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = parsers.add_parser(
        name, help=f"make {what}", description=f"Make {what}."
    )
    parser.add_argument("name", metavar="NAME", help="the object's name")
    if make is not _set:
        parser.add_argument(
            "--interval", default="1m", metavar="TIME", help="how often it is polled (default 1m)"
        )
        parser.add_argument("--secret-ref", metavar="NAME", help="a Secret with credentials")
    parser.add_argument("--export", action="store_true", help="print the manifest, and change nothing")
    add_effect_arguments(parser)
    add_cluster_arguments(parser, timeout=TIMEOUT)
    parser.set_defaults(run=run, make=make)
    return parser


def run(options: argparse.Namespace) -> int:
    """0 made and Ready, or printed; 1 not Ready, or not in time, or no such source; 2 wrong usage; 3 no
    cluster, or it refuses.
    """
    from controller.api.kinds import FLAG_SET, FLAG_SOURCE

    kind, spec = options.make(options)
    type_ = FLAG_SOURCE if kind == FLAG_SOURCE.kind else FLAG_SET
    if problems := type_.validate(spec):
        raise Exit("; ".join(map(str, problems)), USAGE)
    meta = {"name": options.name, **({"namespace": options.namespace} if options.namespace else {})}
    manifest = {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": meta, "spec": spec}
    if options.export:
        print(document(manifest, "yaml"), end="")
        return OK
    done, effect = run_on_cluster(lambda: _apply(options, type_, manifest), verb="changed")
    return report(f"{type_.kind}/{options.name} {done}", effect, options.timeout)


async def _apply(
    options: argparse.Namespace, type_: ResourceType, manifest: dict[str, Any]
) -> tuple[str, Effect]:
    """(what was done, the state that was reached)."""
    # Imported here: it takes a second or two.
    from controller.cli.connection import open_connection
    from controller.kube.answers import path_of

    async with open_connection(scope_of(options)) as connection:
        if options.wait:
            await _require_source(connection, manifest["spec"].get("sourceRef"))
        before = await connection.find(type_, connection.namespace, options.name)
        path = path_of(type_.api_version, type_.kind, connection.namespace, options.name)
        manifest["metadata"]["namespace"] = connection.namespace
        await connection.apply(path, manifest)
        done = "created" if before is None else "configured"
        if not options.wait:
            return done, Effect("its controller has not processed it yet")

        async def look() -> Effect:
            return ready_effect(await connection.get(type_, options.name))

        return done, await follow_effect(look, options.timeout)


async def _require_source(connection: ClusterConnection, reference: dict[str, Any] | None) -> None:
    """Raise Exit for a FlagSet whose source does not exist."""
    from controller.cli.object_rows import SOURCES

    if reference is not None:
        type_ = next(type_ for type_ in SOURCES if type_.kind == reference["kind"])
        await connection.get(type_, reference["name"])


def _source(options: argparse.Namespace, provider: str, fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    credentials = {"secretRef": {"name": options.secret_ref}} if options.secret_ref else {}
    return "FlagSource", {"interval": options.interval, provider: {**fields, **credentials}}


def _git(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    return _source(options, "git", {"url": options.url, **_reference(options, *_REFERENCES)})


def _oci(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    return _source(options, "oci", {"url": options.url, **_reference(options, "tag", "semver", "digest")})


def _bucket(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    given = {
        "provider": options.cloud,
        "bucketName": options.bucket_name,
        "endpoint": options.endpoint,
        "region": options.region,
        "prefix": options.prefix,
    }
    return _source(options, "bucket", {name: text for name, text in given.items() if text})


def _set(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    kind, _, name = options.source.rpartition("/")
    spec: dict[str, Any] = {"sourceRef": {"kind": kind or "FlagSource", "name": name}}
    if options.paths:
        spec["paths"] = options.paths
    if options.target:
        spec["target"] = {"name": options.target}
    if options.lenient:
        spec["validation"] = "Lenient"
    return "FlagSet", spec


def _reference(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    given = {name: getattr(options, name) for name in names if getattr(options, name)}
    return {"ref": given} if given else {}
