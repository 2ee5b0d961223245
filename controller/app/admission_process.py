"""Admission as a process: its parts joined, and its ports open until a signal ends it.

It knows what pods may name by watches of its own, reads no Secret, and shares nothing with the controller but
the settings of injection: what tenants have the controller do delays no pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import NAMESPACE
from controller.app.process_frame import open_frame, run_process, tls_files
from controller.delivery.standing_orders import ORDER
from controller.kube.reflector import Reflector, WatchScope, reflectors_of
from controller.pods.carried_flags import WorkloadOrders
from controller.pods.judging import HELPERS, MOST_WAITING, Judges
from controller.pods.known_objects import WATCHED, KnownObjects, WatchedObjects
from controller.pods.metrics import AdmissionMetrics
from controller.pods.refusals import FlagSetRefusals, Refusals
from controller.pods.webhooks import LIMITS, Injector, OverrideWebhook, Validator, WorkloadWebhook
from controller.runtime.clock import now
from controller.runtime.helpers import Helpers
from controller.runtime.limits import Places
from controller.runtime.watch_health import WatchHealth
from controller.validation.object_policies import PolicySelection, objection_to_review
from evaluator.http.listener import Listener
from evaluator.http.routes import Routes, merge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from controller.app.settings import AdmissionSettings
    from controller.kube.client import Cluster
    from controller.kube.event_sink import ApiServerEvents

OBJECTIONS: Final = "controller.validation.object_policies"
DIRECT_FLAGS: Final = "controller.pods.carried_flags"
"""What the processes load at their start that judge objects, and flags of workloads."""


@dataclass(frozen=True, slots=True)
class AdmissionProcess:
    """A replica whose ports are open."""

    ports: Mapping[str, int]
    watches: tuple[Reflector, ...]

    async def work(self) -> None:
        """Watch what pods may name, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in self.watches:
                group.create_task(watch.run())


@contextlib.asynccontextmanager
async def open_admission(settings: AdmissionSettings) -> AsyncIterator[AdmissionProcess]:
    """Ports open and parts joined; `work` does the rest. Raises OSError for a port or a certificate."""
    tls = await tls_files(settings.admission_cert, settings.admission_key, settings.admission_client_ca)
    async with open_frame(settings) as frame:
        cluster, health = await frame.connect(), WatchHealth(time.monotonic)
        reviews = AdmissionMetrics(frame.registry, health)
        events = await frame.post_events(cluster)
        watched = WatchedObjects(settings.namespaces or ("",))
        watches = _watches(settings, cluster, watched, health)
        routes = _webhooks(settings, watched, events, reviews, _judges(frame.stack))
        management = await frame.manage(partial(_readiness, watched, health))
        listener = Listener(routes, LIMITS, name="admission")
        port = await frame.listen(listener, settings.admission_host, settings.admission_port, tls)
        yield AdmissionProcess({"admission": port, "management": management}, watches)


def _watches(
    settings: AdmissionSettings, cluster: Cluster, watched: WatchedObjects, health: WatchHealth
) -> tuple[Reflector, ...]:
    scopes = [WatchScope(type_, namespace) for type_ in WATCHED for namespace in settings.namespaces or ("",)]
    scopes.append(WatchScope(replace(NAMESPACE, content=False), labels=ORDER))
    return reflectors_of(cluster.api, watched.informer, scopes, health)


def _judges(stack: contextlib.AsyncExitStack) -> tuple[Judges, Judges]:
    """Those of objects, and those of workloads, without which no pod starts: they share nothing."""
    objects, workloads = Helpers((OBJECTIONS,)), Helpers((DIRECT_FLAGS,))
    for helpers in (objects, workloads):
        stack.push_async_callback(helpers.close)
    return (
        Judges(objects, Places(HELPERS, resource="object reviews", most_waiting=MOST_WAITING)),
        Judges(workloads, Places(HELPERS, resource="workload reviews", most_waiting=MOST_WAITING)),
    )


def _webhooks(
    settings: AdmissionSettings,
    watched: WatchedObjects,
    events: ApiServerEvents,
    metrics: AdmissionMetrics,
    judges: tuple[Judges, Judges],
) -> Routes:
    """Those for pods, for workloads that carry flags, for FlagOverrides, and for objects of our kinds.
    `judges`: those of objects, and of workloads.
    """
    clock = asyncio.get_running_loop().time
    refusals = Refusals(events, now, clock)
    flag_set_refusals = FlagSetRefusals(watched.objects, [events], now, clock)

    def report(request: Mapping[str, Any], why: str) -> None:
        refusals.report(request, why)
        flag_set_refusals.take(request, why)

    known = KnownObjects(
        watched.objects, settings.namespaces, bool(settings.allow_cross_namespace), watched.flag_set_id
    )
    injector = Injector(
        known,
        settings.injection(),
        lambda: watched.synced,
        partial(metrics.count_review, "Pod"),
        report,
        watched.namespace_labels,
    )
    workloads = WorkloadWebhook(
        watched.objects,
        settings.direct_sets,
        settings.namespaces,
        lambda: watched.synced,
        judges[1],
        metrics.count_review,
        now,
        WorkloadOrders(known, watched.namespace_labels),
    )
    overrides = OverrideWebhook(settings.override_max_days, metrics.count_review, now)
    selection = PolicySelection(watched.objects, settings.namespace, now)
    validator = Validator(
        objection_to_review,
        judges[0],
        metrics.count_review,
        settings.namespaces,
        selection.around,
        lambda: watched.synced,
    )
    return merge(injector.routes(), workloads.routes(), overrides.routes(), validator.routes())


def _readiness(watched: WatchedObjects, health: WatchHealth) -> dict[str, Any]:
    """Ready once every kind was listed, and without an API server, too; says how old its view is."""
    reports = health.reports()
    ages = [watch.age for watch in reports if watch.age is not None]
    return {
        "ready": watched.synced,
        "ageSeconds": round(max(ages), 1) if ages else None,
        "watches": [watch.page() for watch in reports],
    }


async def run_admission(settings: AdmissionSettings, say: Callable[[str], None]) -> None:
    """Answer until SIGTERM or SIGINT; a second one ends it at once. Raises OSError as `open_admission`."""
    await run_process(open_admission(settings), say)
