"""Connects the parts of notifications: the sink of Events, the reconcilers, and the deliverer."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.flagprovider import FlagProviderStatus
from controller.api.kinds import FLAG_PROVIDER
from controller.api.objects.meta import Resource
from controller.app.allowed_hosts import provider_hosts_of
from controller.events.alerts.outbox import Outbox
from controller.events.alerts.page_links import PageLinks
from controller.events.services.deliverer import Deliverer, Senders
from controller.events.services.flux_events import FLUX, FluxEvents
from controller.events.services.http_sender import HttpSender
from controller.events.services.mail_sender import MailSender
from controller.events.services.provider_reconciler import FlagProviderReconciler
from controller.runtime.clock import now
from controller.runtime.network.http_client import HttpClient
from controller.runtime.tenancy.places import Places

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from controller.api.objects.meta import ObjectKey
    from controller.app.settings.process_settings import ControllerSettings
    from controller.kube.accounts import Accounts
    from controller.runtime.event import EventSink
    from controller.runtime.objects.cache import Cache
    from controller.runtime.process.metrics import Metrics


AT_ONCE: Final = 256
"""Requests that are sent at a time; one namespace has half of them at most."""


@dataclass(frozen=True, slots=True)
class Notifying:
    """The parts that others need."""

    outbox: Outbox
    sinks: tuple[EventSink, ...]
    """Sinks of Events: the outbox, and optionally the posts to Flux."""
    deliverer: Deliverer
    providers: FlagProviderReconciler


async def open_notifications(
    stack: contextlib.AsyncExitStack,
    settings: ControllerSettings,
    accounts: Accounts,
    objects: Cache,
    metrics: Metrics,
    wake: Callable[[ObjectKey, float], None],
) -> Notifying:
    """Connect the parts; `stack` closes them, `wake` puts an object into its queue."""
    cluster = accounts.cluster
    hosts = provider_hosts_of(settings, cluster.server)
    # The other client is for addresses that come from the controller's operator.
    http, operators = (
        HttpClient(allowed, Places(AT_ONCE, AT_ONCE, resource="alerts")) for allowed in (hosts, None)
    )
    stack.push_async_callback(http.close)
    stack.push_async_callback(operators.close)
    outbox = Outbox(objects, now, wake)
    deliverer = Deliverer(
        outbox,
        Senders(HttpSender(http, now), MailSender(hosts), HttpSender(operators, now)),
        objects,
        cluster,
        now=now,
        clock=asyncio.get_running_loop().time,
        random=random.random,
        count=metrics.count_alert,
    )

    async def newest(key: ObjectKey) -> FlagProviderStatus:
        body = await cluster.get(FLAG_PROVIDER.api_version, key.kind, key.namespace, key.name)
        return FlagProviderStatus.of(None if body is None else Resource.of(body))

    providers = FlagProviderReconciler(
        accounts.secret,
        newest,
        outbox,
        deliverer,
        settings.identity,
        settings.allow_local_providers,
        settings.events_addr or FLUX,
    )
    sinks: tuple[EventSink, ...] = (outbox,)
    if settings.events_addr:
        flux = FluxEvents(
            settings.events_addr, HttpSender(operators, now), objects, settings.identity, metrics.registry
        )
        await stack.enter_async_context(flux.post_in_background())
        sinks = (outbox, flux)
    if settings.page_url:
        sinks = (PageLinks(sinks, settings.page_url),)
    return Notifying(outbox, sinks, deliverer, providers)
