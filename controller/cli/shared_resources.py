"""The register of shared resources: whatever work of several namespaces, clients or objects waits for, or is
kept in. `docs/reference/security-promises.md` prints it, and a test compares it with the program.
"""

from __future__ import annotations

from typing import Final, NamedTuple

BEGIN: Final = "<!-- shared resources, written by `make crds` -->"
END: Final = "<!-- end of the shared resources -->"
_WAITING: Final = "flagstaff_shared_waiting"
_PORT: Final = "flagstaff_connections"
_ALL: Final = "all"
_CONTROLLER: Final = "controller"
_NAMESPACE: Final = "namespace"
_HALF: Final = "half; one for each that has none"
_KEPT: Final = "what is used least goes, and is made again"


class SharedResource(NamedTuple):
    """What several owners share."""

    name: str
    """Of what is waited for, the label `resource` of its metric."""
    process: str
    owner: str
    """For whom its work is counted."""
    most: str
    share: str
    """What one owner has of it at most, and what every other one finds."""
    end: str
    """What ends the work, and not only the wait."""
    metric: str
    uses: tuple[str, ...]
    """Where it is in the program: `module:name`, once for each use of a primitive there."""


REGISTER: Final = (
    SharedResource(
        "threads", _ALL, _NAMESPACE, "8", _HALF, "its bound of bytes, values or steps", _WAITING,
        ("evaluator.host.threads:_fair", "evaluator.host.threads:share_threads"),
    ),
    SharedResource(
        "reconciles", _CONTROLLER, _NAMESPACE, "128 of kinds that ask servers, else twice the workers", _HALF,
        "`spec.timeout`, and the limits of the rows below", "flagstaff_queue_depth",
        (
            "controller.app.reconcilers:queue_of", "controller.app.pod_work:places",
            "controller.app.pod_work:queue", "controller.pods.flag_files:queue_of_files",
            "controller.runtime.queue:_shares", "controller.runtime.limits:_shares",
        ),
    ),
    SharedResource(
        "receipts", "proxy", _NAMESPACE, "8 writes", "half", "the client's timeout",
        "flagstaff_proxy_receipt_writes_total",
        ("controller.app.proxy_process:queue", "controller.local.local_fleet:queue"),
    ),
    SharedResource(
        "git", _CONTROLLER, _NAMESPACE, "16 programs", f"{_HALF}; `--quota-git-processes`",
        "`spec.timeout`: the program is killed", _WAITING, ("controller.sources.git_factory:places",),
    ),
    SharedResource(
        "commits", _CONTROLLER, _NAMESPACE, "2 processes", "half",
        "`spec.timeout`, 20 s of CPU: the process is killed", _WAITING,
        ("controller.sources.git_factory:_reading", "controller.sources.git_factory:helpers"),
    ),
    SharedResource(
        "buckets", _CONTROLLER, _NAMESPACE, "4 processes", _HALF,
        "`spec.timeout`, 60 s of CPU: the process is killed", _WAITING,
        (
            "controller.sources.bucket_factory:_own",
            "controller.sources.bucket_factory:_others",
            "controller.sources.bucket_factory:_places",
        ),
    ),
    SharedResource(
        "registries", _CONTROLLER, _NAMESPACE, "8 fetches", _HALF, "`spec.timeout`", _WAITING,
        ("controller.sources.oci_backend:_places",),
    ),
    SharedResource(
        "signatures", _CONTROLLER, _NAMESPACE, "1 process", _HALF,
        "`spec.timeout`, 10 s of CPU: the process is killed", _WAITING,
        ("controller.sources.oci_backend:_helpers", "controller.sources.oci_backend:_judges"),
    ),
    SharedResource(
        "foreign content", _CONTROLLER, _NAMESPACE, "2 processes", "half",
        "120 s, 30 s of CPU: the process is killed", _WAITING,
        ("controller.app.controller_process:tasks", "controller.app.controller_process:helpers"),
    ),
    SharedResource(
        "remote HTTP", _CONTROLLER, _NAMESPACE, "16 requests", _HALF, "10 s", _WAITING,
        ("controller.app.reconcilers:http",),
    ),
    SharedResource(
        "remote gRPC", _CONTROLLER, _NAMESPACE, "16 calls", _HALF, "10 s", _WAITING,
        ("controller.app.reconcilers:rpc",),
    ),
    SharedResource(
        "other clusters", _CONTROLLER, _NAMESPACE, "64 requests", _HALF, "10 s", _WAITING,
        ("controller.app.reconcilers:places",),
    ),
    SharedResource(
        "rollout requests", _CONTROLLER, _NAMESPACE, "128", _HALF, "10 s", _WAITING,
        ("controller.app.reconcilers:client",),
    ),
    SharedResource(
        "alerts", _CONTROLLER, _NAMESPACE, "256 requests", _HALF, "the provider's timeout", _WAITING,
        ("controller.app.reconcilers:open_notifications",),
    ),
    SharedResource(
        "mail", _CONTROLLER, _NAMESPACE, "64 connections", _HALF, "the provider's timeout", _WAITING,
        ("controller.events.senders:_places",),
    ),
    SharedResource(
        "Events", "controller, admission, proxy", _NAMESPACE, "4 posts, 5,000 wait",
        "one post; of a full queue the owner with most loses its oldest",
        "some minutes of errors; without an answer it is tried again", _WAITING,
        ("controller.runtime.event_queue:_turns",),
    ),
    SharedResource(
        "names", _ALL, _NAMESPACE, "32 look-ups", _HALF, "the resolver's timeout", _WAITING,
        ("controller.runtime.hosts:_THREADS",),
    ),
    SharedResource(
        "programs", _CONTROLLER, _NAMESPACE, "32 starts and ends", _HALF, "the program's end: it is killed",
        _WAITING, ("controller.runtime.limited_child:_THREADS",),
    ),
    SharedResource(
        "removals", _CONTROLLER, _NAMESPACE, "1 thread", _HALF, "the end of the folder", _WAITING,
        ("controller.artifacts.storage:_remover",),
    ),
    SharedResource(
        "archives sent", _CONTROLLER, "client's address", "256", _HALF, "300 s", _WAITING,
        ("controller.artifacts.artifact_server:sending",),
    ),
    SharedResource(
        "archives read", _CONTROLLER, "client's address", "4 threads", _HALF, "64 KiB at a time", _WAITING,
        ("controller.artifacts.artifact_server:_pool",),
    ),
    SharedResource(
        "object reviews", "admission", _NAMESPACE, "2 processes, 8 wait", "half",
        "80 % of the webhook's `timeoutSeconds`, or the API server's end: the process is killed", _WAITING,
        ("controller.app.admission_process:_judges",) * 2,
    ),
    SharedResource(
        "workload reviews", "admission", _NAMESPACE, "2 processes, 8 wait", "half", "as of object reviews",
        _WAITING, ("controller.app.admission_process:_judges",) * 2,
    ),
    SharedResource(
        "answers", _ALL, "client's address", "1 thread, 16 wait", _HALF,
        "30 s of waiting; 20,000 steps of an evaluation, 1,000 flags of a page", _WAITING,
        (
            "controller.app.process_frame:offload", "evaluator.http.offload:_threads",
            "evaluator.wiring:_offload", "controller.local.local_mode:offload",
        ),
    ),
    SharedResource(
        "page streams", "page", "reader", "400", _HALF, "its page is closed", _WAITING,
        ("controller.page.page_server:_shares",),
    ),
    SharedResource(
        "page views", "page", "reader", "432", _HALF, "30 s", _WAITING,
        ("controller.page.page_server:_views",),
    ),
    SharedResource(
        "page thread", "page", "reader", "1", "its turn", "20,000 steps of an evaluation, and what is shown",
        _WAITING, ("controller.page.page_server:_thread",),
    ),
    SharedResource(
        "reviews", "page, proxy", "reader, or address", "32 at a time", _HALF, "the client's timeout",
        _WAITING, ("controller.proxy.access:turns",),
    ),
    SharedResource(
        "streams", "proxy", "address, namespace", "`--max-streams`",
        "`--max-streams-per-host`: half; `--quota-streams`", "`--stream-seconds`", "flagstaff_proxy_streams",
        ("controller.proxy.server:limits", "controller.proxy.authorizer:waiting"),
    ),
    SharedResource(
        "turns of the loop", _ALL, "connection or stream", "1 ms at a time", "its turn",
        "20,000 steps of an evaluation", "flagstaff_loop_lag_seconds",
        (
            "controller.proxy.server:hub", "evaluator.http.listener:_port",
            "evaluator.wiring:queue",
        ),
    ),
    SharedResource(
        "ports", _ALL, "address", "connections and bytes of each port",
        "half of the connections; of the bytes the largest connection is ended",
        "3 s for a header, 5 s for a body, then idle time", _PORT,
        (
            "controller.app.page_process:LIMITS", "controller.app.proxy_process:LIMITS",
            "controller.artifacts.artifact_server:LIMITS", "controller.events.webhook_server:LIMITS",
            "controller.pods.webhooks:LIMITS", "evaluator.http.dispatch:__init__",
            "evaluator.http.limits:MANAGEMENT", "evaluator.http.listener:__init__",
            "evaluator.wiring:limits",
        ),
    ),
    SharedResource(
        "caches of reviews", "page, proxy", "none", "50,000 of each",
        "what is used least goes; refusals apart", "5 to 3,600 s", "",
        (
            "controller.app.page_process:_seen", "controller.proxy.access:_readers",
            "controller.proxy.access:_refused", "controller.proxy.access:_answers",
            "controller.proxy.access:_refusals",
        ),
    ),
    SharedResource(
        "remembered webhooks", _CONTROLLER, "none", "512 of a FlagReceiver", "512 of each", "ten minutes", "",
        ("controller.events.webhook_server:_seen",),
    ),
    SharedResource(
        "caches of flag sets", "page, controller", "none", "64 and 10,000", _KEPT, "a newer version", "",
        (
            "controller.app.cluster_page:_compiled", "controller.app.cluster_page:_states",
            "controller.sources.flag_servers:_digests",
        ),
    ),
    SharedResource(
        "caches of connections", _CONTROLLER, "none", "64 and 4,096", _KEPT, "80 % of a token's life", "",
        (
            "controller.runtime.http_client:context_of",
            "controller.runtime.http_client:_contexts",
            "controller.sources.oci_backend:public_root",
            "controller.sources.oci_registry:_tokens",
            "controller.sources.registry_identity:_kept",
        ),
    ),
    SharedResource(
        "caches of what a text means", _ALL, "none", "64 to 1,024", _KEPT, "nothing: it is always right", "",
        (
            "controller.api.flagalert:expression", "controller.api.flagalert:glob_list",
            "controller.api.expression_syntax:parse",
            "controller.api.parsing:ignore_patterns",
            "controller.api.manifests_writer:_documented_fields",
            "controller.flagsets.compose:_table",
            "controller.flagsets.pgp:_decryptors", "controller.page.rendering:environment",
            "controller.pods.marked_pods:_text",
            "controller.validation.object_problems:schemas",
            "controller.validation.object_problems:_compiled", "evaluator.flags.versions:parse_version",
            "evaluator.http.http1_reader:known_target",
            "evaluator.http.h2_streams:data_frame", "evaluator.http.h2_responses:_start",
            "evaluator.http.hpack:_known_name", "evaluator.http.grpc_framing:_frames",
            "evaluator.http.grpc_framing:_status",
        ),
    ),
    SharedResource(
        "what was reported", "controller, admission, proxy", "none", "1,024 to 10,000",
        "the oldest goes, and may be reported again", "an hour", "",
        (
            "controller.events.outbox:early", "controller.events.provider_outbox:recent",
            "controller.pods.refusals:_paces", "controller.pods.refusals:_reported",
            "controller.pods.refusals:_reported", "controller.pods.refusals:_reported",
            "controller.runtime.event_queue:_known", "controller.runtime.cache:_deleted",
        ),
    ),
    SharedResource(
        "what one connection, pod or person has alone", "evaluator, up", "none", "as its owner needs",
        "there is one owner", "its owner's end", "",
        (
            "controller.cli.edited_files:_schemas", "controller.cli.language_server:_checks",
            "controller.local.registries:judge", "controller.sources.oci_backend:places",
            "controller.local.local_stages:_happened",
            "controller.local.local_stages:_loops", "controller.local.local_follower:loop",
            "evaluator.http.h2_streams:_ended",
            "evaluator.store.history:_waiting", "evaluator.store.history:states",
        ),
    ),
)  # fmt: skip


def with_table(page: str) -> str:
    """Return a page with the register. Raises ValueError where it has no place for it."""
    return written_between(page, BEGIN, END, table())


def written_between(page: str, begin: str, end: str, text: str) -> str:
    """Return a page with the text between two lines of it. Raises ValueError where it has not these."""
    before, first, rest = page.partition(f"{begin}\n")
    _, last, after = rest.partition(end)
    if not first or not last:
        raise ValueError(f"the page has no `{begin}` and `{end}`")
    return f"{before}{begin}\n\n{text}\n{end}{after}"


def table() -> str:
    """Return the register in Markdown."""
    head = "| what | processes | of each | most | share of one | what ends the work | metric |\n"
    rows = (
        (row.name, row.process, row.owner, row.most, row.share, row.end, row.metric and f"`{row.metric}`")
        for row in REGISTER
    )
    return head + "|---|---|---|---|---|---|---|\n" + "".join(map(_line, rows))


def _line(cells: tuple[str, ...]) -> str:
    return f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|\n"
