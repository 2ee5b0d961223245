"""`flagstaff trace`: from a flag of a cluster back to file, line, commit, author and pull request."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from controller.cli.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.output import DOCUMENTS, add_output_argument, document, plain
from controller.cli.printing import OK, PROBLEM, Exit, did_you_mean

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from controller.api.meta import Resource
    from controller.cli.connection import ClusterConnection
    from controller.cli.flag_trace import FlagTrace
    from controller.delivery.flag_state import FlagState
    from controller.delivery.set_state import SetState


def configure_trace(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("flag", metavar="FLAG", help="the flag's key")
    parser.add_argument("--set", dest="flag_set", metavar="NAME", help="only in the object of this name")
    parser.add_argument(
        "--repository", default=".", metavar="DIR", type=lambda folder: str(Path(folder).absolute()),
        help="a clone of the source's repository (default: the current folder; one without the commit is not "
        "used, and the source's address is read instead)",
    )  # fmt: skip
    add_output_argument(parser, "text", *DOCUMENTS)
    add_cluster_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 shown; 1 no such flag; 2 wrong usage; 3 no cluster."""
    from controller.cli.flag_trace import FlagTrace, as_text

    traces = run_on_cluster(lambda: _traces(options), doing="reading the cluster and the repository")
    if options.output in DOCUMENTS:
        print(document(plain(traces, FlagTrace), options.output), end="")
    else:
        print("\n\n".join("\n".join(as_text(trace)) for trace in traces))
    return OK


async def _traces(options: argparse.Namespace) -> list[FlagTrace]:
    # Imported here: it takes a second or two.
    from controller.api.kinds import DELIVERED, FEATURE_FLAG_CONFIGURATION, FLAG_ROLLOUT, FLAG_SHARD
    from controller.cli.connection import open_connection
    from controller.cli.effects import read_states
    from controller.cli.object_rows import delivered_set
    from controller.delivery.flag_state import flag_states

    async with open_connection(scope_of(options)) as connection:
        shards = {shard.key: shard for shard in await connection.resources(FLAG_SHARD)}
        rollouts = await connection.resources(FLAG_ROLLOUT)
        read = await read_states(connection, *DELIVERED[:2])
        keys: set[str] = set()
        traces = []
        for resource in read.resources:
            flag_set = delivered_set(resource, shards.get)
            if flag_set is None or options.flag_set not in {None, resource.name}:
                continue
            flags = flag_states(read.states[resource.key], flag_set)
            keys |= flags.keys()
            if (flag := flags.get(options.flag)) is not None:
                trace = await _trace(connection, resource, read.states[resource.key], options)
                traces.append(with_state(trace, flag, rollouts, resource))
    # A FeatureFlag beside a FeatureFlagConfiguration of one flag set has the same way.
    preferred = [trace for trace in traces if trace.object.startswith(FEATURE_FLAG_CONFIGURATION.kind)]
    if not traces:
        hint = did_you_mean(options.flag, sorted(keys))
        raise Exit(f"there is no flag {options.flag!r} in namespace {connection.namespace}{hint}", PROBLEM)
    return preferred or traces


def with_state(
    trace: FlagTrace, flag: FlagState, rollouts: Sequence[Resource], resource: Resource
) -> FlagTrace:
    """The trace with what is served of the flag, and by what."""
    from controller.cli.flag_trace import rollout_text
    from controller.delivery.state_words import override_text, problem_text

    layer = flag.override_layer
    return replace(
        trace,
        default_variant=None if flag.flag is None else flag.flag.default_variant,
        held_from=flag.held_from or ("nothing" if flag.flag is None else None),
        problem=problem_text(flag.problems[0]) if flag.problems and flag.held else None,
        rollout=rollout_text(rollouts, resource, flag),
        override=None if layer is None else override_text(layer),
    )


async def _trace(
    connection: ClusterConnection, resource: Resource, state: SetState, options: argparse.Namespace
) -> FlagTrace:
    """The way from an object back to its source."""
    from controller.api import flagset
    from controller.api.flagsource import source_address
    from controller.api.kinds import FLAG_SET
    from controller.cli.flag_trace import FlagTrace
    from controller.cli.object_rows import SOURCES, object_row

    row = object_row(resource, state)
    trace = FlagTrace(options.flag, str(resource.key), row.served)
    writer = flagset.proven_writer(resource)
    flag_set = await connection.find(FLAG_SET, resource.namespace, writer) if writer else None
    if flag_set is None:
        return replace(trace, revision=row.revision, unknown="the object is written by hand")
    key = flagset.source_key(flag_set)
    newest = state.history[0] if state.history else None
    trace = replace(
        trace,
        flag_set=f"{flag_set.namespace}/{flag_set.name}",
        revision=state.applied or None,
        author=None if newest is None else newest.author,
        subject=None if newest is None else newest.subject,
    )
    type_ = next((type_ for type_ in SOURCES if key is not None and type_.kind == key.kind), None)
    source = None if key is None or type_ is None else await connection.find(type_, key.namespace, key.name)
    if source is None:
        return replace(trace, unknown="the source is gone")
    trace = replace(trace, source=str(source.key), address=source_address(source))
    return await _add_places(trace, tuple(flag_set.spec.get("paths") or (".",)), options.repository)


async def _add_places(trace: FlagTrace, paths: Sequence[str], repository: str) -> FlagTrace:
    """The trace with file, line, commit and pages, as far as a repository is at hand."""
    from controller.events.commit_pages import change_request_page, commit_in, link
    from controller.local.commits import flag_places, last_change
    from controller.local.local_options import LocalOptions
    from controller.runtime.setbacks import Setback

    revision, address = trace.revision or "", trace.address or ""
    commit = commit_in(revision)
    if not commit:
        return replace(trace, unknown="the source is no Git repository")
    trace = replace(trace, commit=commit)
    for source in (repository, address):
        options = LocalOptions(source, paths=tuple(paths))
        with contextlib.suppress(Setback):
            places = await flag_places(options, commit, trace.flag)
            changed = await last_change(source, commit, places) if source != address else None
            trace = replace(trace, places=tuple(f"{place.file}:{place.line}" for place in places))
            if changed is not None:
                trace = replace(trace, commit=changed.commit, author=changed.author, subject=changed.subject)
            break
    else:
        trace = replace(trace, unknown=f"neither {repository} nor {address} can be read; see --repository")
    page = link(address, f"@sha1:{trace.commit}")
    request = change_request_page(page, trace.subject or "")
    return replace(trace, commit_page=page or None, change_request=request or None)
