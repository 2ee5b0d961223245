"""`flagstaff migrate`: from OpenFeature Operator to Flagstaff."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from controller.cli.clusters import add_kubeconfig_arguments, run_on_cluster
from controller.cli.manifests import ObjectManifest, read_manifests
from controller.cli.printing import OK, PROBLEM, USAGE, Exit
from controller.migration.finding import Fate
from controller.migration.migrated_objects import GivenObjects, MigratedObject, subject
from controller.migration.steps import Installed, MigrationStep, steps
from controller.migration.values import Value
from controller.migration.values import options as options_of
from controller.pods.installation import OPERATORS, Options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from controller.cli.migration_dry_run import Seen


def configure_migrate(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    verbs = parser.add_subparsers(dest="migration", metavar="VERB", required=True)
    check = _add_verb(verbs, "check", "say what becomes of each field, and the steps of the cut-over")
    _add_files(check, "manifests: files or folders; without it, a live cluster is read")
    check.add_argument(
        "-n", "--namespace", default="", metavar="NS",
        help="namespace of manifests that name none (default: default); or the one to read (default: all)",
    )  # fmt: skip
    check.add_argument("--compat", choices=[OPERATORS], help="as the controller's option of this name")
    _add_output(check)
    add_kubeconfig_arguments(check)
    check.set_defaults(run=_check)
    values = _add_verb(verbs, "values", "turn OpenFeature Operator's Helm values into our options")
    values.add_argument("-f", "--filename", required=True, metavar="FILE", dest="file", help="values.yaml")
    _add_output(values)
    values.set_defaults(run=_values)
    apply = _add_verb(verbs, "apply", "have the API server try each change of the cut-over")
    apply.add_argument("--dry-run", action="store_true", required=True, help="change nothing; always needed")
    _add_files(apply, "manifests that would be applied, such as crds and deploy")
    add_kubeconfig_arguments(apply)
    apply.set_defaults(run=_apply)


def _add_verb(verbs: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."
    )
    return parser


def _add_files(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        "-f", "--filename", action="append", default=[], metavar="PATH", dest="files", help=text
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=["text", "json"], default="text", help="form of what is printed"
    )


def _check(arguments: argparse.Namespace) -> int:
    """0: nothing must be changed; 1: something is refused; 2 wrong usage; 3 no cluster."""
    known_options = Options(compat=bool(arguments.compat), flag_files=True)
    manifests: Sequence[ObjectManifest]
    if arguments.files:
        manifests = read_manifests(arguments.files)
        installed = Installed()
    else:
        seen = _read_cluster(arguments)
        manifests, installed = [ObjectManifest(body, "", None) for body in seen.objects], seen.installed
    namespace = arguments.namespace or "default"
    known = GivenObjects([manifest.body for manifest in manifests], namespace, whole=not arguments.files)
    migrated = [
        (manifest, migration)
        for manifest in manifests
        if (migration := subject(manifest.body, namespace, known_options, known)) is not None
    ]
    todo = [*steps([migration for _, migration in migrated], installed)]
    if arguments.output == "json":
        print(json.dumps(_as_json(migrated, todo), indent=2, ensure_ascii=False))
    else:
        _print(migrated, todo)
    refused = any(finding.fate is Fate.REFUSED for _, migration in migrated for finding in migration.findings)
    return PROBLEM if refused else OK


def _read_cluster(arguments: argparse.Namespace) -> Seen:
    from controller.cli.migration_dry_run import open_cluster, read_cluster

    async def read() -> Seen:
        async with open_cluster(arguments.kubeconfig, arguments.context) as cluster:
            return await read_cluster(cluster, [arguments.namespace] if arguments.namespace else [])

    return run_on_cluster(read)


def _print(migrated: Sequence[tuple[ObjectManifest, MigratedObject]], todo: Iterable[MigrationStep]) -> None:
    for manifest, migration in migrated:
        file = f" ({manifest.file})" if manifest.file else ""
        print(f"{migration.kind} {migration.namespace}/{migration.name}{file}")
        kept = [
            finding.field
            for finding in migration.findings
            if finding.fate is Fate.KEPT and not finding.broken
        ]
        for finding in migration.findings:
            if finding.fate is Fate.KEPT and not finding.broken:
                continue
            line = manifest.line(finding.path)
            where = f"{manifest.file}:{line}: " if line else ""
            print(
                f"  {where}{finding.fate}: {finding.field}{f': {finding.message}' if finding.message else ''}"
            )
            if finding.broken:
                print(f"    broken today: {finding.broken}")
        if kept:
            print(f"  kept: {', '.join(kept)}")
    print("\nThe cut-over, in this order:" if migrated else "Nothing of OpenFeature Operator's was found.")
    for number, step in enumerate(todo if migrated else (), 1):
        print(f"{number}. {step.text}")
        for command in step.commands:
            print(f"     {command}")


def _as_json(
    migrated: Sequence[tuple[ObjectManifest, MigratedObject]], todo: Iterable[MigrationStep]
) -> dict[str, Any]:
    return {
        "objects": [
            {
                "kind": migration.kind,
                "namespace": migration.namespace,
                "name": migration.name,
                "file": manifest.file or None,
                "fields": [
                    {
                        "field": finding.field,
                        "line": manifest.line(finding.path),
                        "fate": finding.fate.value,
                        "message": finding.message,
                        "brokenToday": finding.broken or None,
                    }
                    for finding in migration.findings
                ],
            }
            for manifest, migration in migrated
        ],
        "steps": [{"text": step.text, "commands": list(step.commands)} for step in todo],
    }


def _values(arguments: argparse.Namespace) -> int:
    """0; 2 for a file that cannot be read."""
    bodies = [manifest.body for manifest in read_manifests([arguments.file])]
    if len(bodies) != 1 or not isinstance(bodies[0], dict):
        raise Exit(f"{arguments.file}: must be one object of values", USAGE)
    chart_values = [*options_of(bodies[0])]
    if arguments.output == "json":
        print(json.dumps([{**asdict(value), "fate": value.fate.value} for value in chart_values], indent=2))
    else:
        _print_values(chart_values)
    return OK


def _print_values(values: Sequence[Value]) -> None:
    own = [value for value in values if not value.stock]
    for value in own:
        option = value.option and f"flagstaff {value.option}"
        shown = "; ".join(text for text in (option, value.message) if text)
        print(f"{value.path}: {value.fate}: {shown}")
    if len(own) < len(values):
        print(f"{len(values) - len(own)} values are the chart's defaults: nothing has to be done about them")


def _apply(arguments: argparse.Namespace) -> int:
    """0: each change would be accepted; 1: one would not; 2 wrong usage; 3 no cluster."""
    manifests = read_manifests(arguments.files)
    from controller.cli.migration_dry_run import dry_run_apply, dry_run_change, open_cluster, read_cluster

    async def try_all() -> int:
        refused = 0
        async with open_cluster(arguments.kubeconfig, arguments.context) as cluster:
            for manifest in manifests:
                if not manifest.is_object:
                    print(f"skip {manifest.file}: no object")
                    continue
                meta = manifest.body["metadata"]
                outcome = await dry_run_apply(cluster, manifest.body)
                refused += outcome.startswith("refused")
                print(f"apply {manifest.body['kind']} {meta.get('namespace', '')}/{meta['name']}: {outcome}")
            installed = (await read_cluster(cluster, [])).installed
            for change in (change for step in steps((), installed) for change in step.changes):
                refusal = await dry_run_change(cluster, change)
                refused += bool(refusal)
                said = f"refused: {refusal}" if refusal else "would be taken"
                print(f"{change.method.lower()} {change.path}: {said}")
        return PROBLEM if refused else OK

    return run_on_cluster(try_all, verb="asked")
