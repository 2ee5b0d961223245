"""Reconciler of FlagProvider: reads address and token, and stores the waiting messages in the status."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from controller.api.addresses import AddressRefused, require_address, require_proxy, require_usable
from controller.api.fields import LocalReference, require
from controller.api.flagprovider import (
    GITHUB_APPS,
    FlagProviderSpec,
    FlagProviderStatus,
    missing_setting,
    needs_of,
)
from controller.api.meta import TEST_ALERT, ObjectKey, Resource
from controller.events import alert_messages, git_servers
from controller.events import git_servers as github_app
from controller.events.deliverer import DELIVERED, Deliverer
from controller.events.notice import App, ProviderTarget
from controller.events.plan_poster import PLANNED
from controller.events.service_types import SERVICES
from controller.runtime.http_client import Route, context_of
from controller.runtime.result import Done, Result, spec_of
from controller.runtime.secret_texts import SecretTexts, Tls, proxy_url
from controller.runtime.setbacks import Failed, Setback, Stalled, Waiting, stall_on_invalid_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from datetime import datetime

    from controller.events.outbox import Outbox
    from controller.events.plan_poster import PlanPoster


MOST_CHARACTERS: Final = 4_096
"""Most characters of an address or a token in a Secret."""


@dataclass(frozen=True, slots=True)
class FlagProviderReconciler:
    """The only writer of a provider's status while this replica leads, so that one write covers all of it."""

    secret: Callable[[str, str], Awaitable[Mapping[str, bytes] | None]]
    """(namespace, name) -> a Secret's content, or None. Raises Failed."""
    newest: Callable[[ObjectKey], Awaitable[FlagProviderStatus]]
    """Reads a provider's current status from the API server. Raises Failed."""
    outbox: Outbox
    deliverer: Deliverer
    plans: PlanPoster
    instance: str
    """The name of this replica."""
    allow_local: bool
    """Whether an address may be of this machine or a private network, or plain http."""
    flux: str
    """The address of Flux's notification-controller, by the controller's operator."""
    cluster: str = ""
    """The name of our cluster; empty: it has none."""

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Store the waiting messages in the status, and start their delivery if the provider is usable."""
        box = self.outbox.box(resource.key)
        if box is None:
            box = self.outbox.open(resource.key, await self.newest(resource.key))
        await self.outbox.compare(resource)
        self.outbox.recheck(resource)
        asked = resource.annotations.get(TEST_ALERT)
        if asked is not None and asked != box.tested and len(asked) <= 253:
            box.push(alert_messages.of_test(resource, asked, now))
            box.tested = asked
        outcome: Done | Setback
        requeue_after = box.seconds_to_next(now)
        try:
            target = await self._target(resource)
        except Setback as setback:
            outcome = setback
            requeue_after = setback.delay if requeue_after is None else requeue_after
            if not isinstance(setback, Failed):
                self.deliverer.stop(resource.key)
                self.plans.stop(resource.key)
        else:
            outcome = Done(f"alerts are sent by {target.spec.type}")
            self.deliverer.use(resource.key, target)
            self.plans.use(resource.key, resource.uid, target)
        # The result of the last try, which may be of an earlier leader.
        last = self.deliverer.last(resource.key) or FlagProviderStatus.of(resource).conditions_of(DELIVERED)
        details = (*last, *self.plans.last(resource.key))
        return Result(
            outcome, status=box.status(), details=details, requeue_after=requeue_after, ended=(PLANNED,)
        )

    def forget(self, key: ObjectKey) -> None:
        """Forget the provider and its waiting messages."""
        self.deliverer.stop(key)
        self.plans.stop(key)
        self.outbox.forget(key)

    async def _target(self, resource: Resource) -> ProviderTarget:
        """Return the settings of spec and Secret. Raises Setback."""
        spec = spec_of(FlagProviderSpec, resource)
        with stall_on_invalid_text():
            require(spec.cluster_problems())
        given = {} if spec.address is None else {"address": spec.address}
        app = None
        texts = await self._texts(resource.namespace, spec.secret_ref)
        if texts is not None and spec.secret_ref is not None:
            # Files end in a line break, and `kubectl create secret --from-file` keeps it.
            texts_by_key = {key: _short_text(texts, key) for key in ("address", "token")}
            given |= {key: text for key, text in texts_by_key.items() if text}
            if spec.type in GITHUB_APPS:
                app = await asyncio.to_thread(github_app.app_of, texts)
            for key in {"address", "token"}.intersection(needs_of(spec.type)):
                if not given.get(key) and not (key == "token" and app is not None):
                    lacking = missing_setting(spec.type, key, spec.secret_ref.name)
                    raise Stalled(lacking.reason, lacking.message)
        address = given.get("address", "")
        if address:
            with _stall_on_refusal("the address"):
                require_address(spec.type, address, allow_local=self.allow_local)
        elif spec.type == "flux":
            return self._flux_target(spec, resource.namespace)
        scheme, host = self._server_of(spec, address, app)
        if texts is not None:
            texts.require_host(host)
        route = await self._route(resource.namespace, spec, host)
        if texts is not None and route.proxy and scheme == "http":
            # A proxy can read plain http.
            texts.require_host(urlsplit(route.proxy).hostname or "")
        token = given.get("token", "") if app is None else ""
        return ProviderTarget(
            spec, address, token, resource.namespace, self.instance, route, app=app, cluster=self.cluster
        )

    def _flux_target(self, spec: FlagProviderSpec, namespace: str) -> ProviderTarget:
        """Return the target of a provider without an address. Raises Stalled."""
        if spec.proxy_secret_ref is not None or spec.cert_secret_ref is not None:
            # A private address may be asked only on the operator's own way.
            message = "type flux needs spec.address where proxySecretRef or certSecretRef is given"
            raise Stalled("AddressNotFound", message)
        route = Route(namespace=namespace, seconds=spec.timeout)
        return ProviderTarget(spec, self.flux, "", namespace, self.instance, route, operators=True)

    def _server_of(self, spec: FlagProviderSpec, address: str, app: App | None) -> tuple[str, str]:
        """Return (scheme, host) of the server. Raises Stalled."""
        if app is not None and app.base:
            with _stall_on_refusal(github_app.BASE):
                require_usable(app.base, allow_local=self.allow_local)
            parts = urlsplit(app.base)
            return parts.scheme, parts.hostname or ""
        parts = urlsplit(address or SERVICES[spec.type].server)
        host = parts.hostname or ""
        if spec.type in git_servers.TYPES:
            host = git_servers.API_HOSTS.get(host, host)
        return parts.scheme, host

    async def _route(self, namespace: str, spec: FlagProviderSpec, host: str) -> Route:
        """Return the connection settings for the address's host. Raises Setback."""
        tls, proxy, shown_to = Tls(), "", [host]
        if (texts := await self._texts(namespace, spec.proxy_secret_ref)) is not None:
            proxy = proxy_url(texts, ("http", "https"))
            parts = urlsplit(proxy)
            texts.require_host(parts.hostname or "")
            with _stall_on_refusal("the proxy"):
                require_proxy(proxy, allow_local=self.allow_local)
            if parts.scheme == "https":
                shown_to.append(parts.hostname or "")
        if (texts := await self._texts(namespace, spec.cert_secret_ref)) is not None:
            for name in shown_to:
                texts.require_host(name)
            tls = texts.tls()
            if not any(tls):
                raise texts.invalid("has neither 'ca.crt' nor 'tls.crt' with 'tls.key'")
            await asyncio.to_thread(context_of, tls)
        return Route(tls, proxy, namespace, spec.timeout)

    async def _texts(self, namespace: str, reference: LocalReference | None) -> SecretTexts | None:
        if reference is None:
            return None
        content = await self.secret(namespace, reference.name)
        if content is None:
            raise Waiting("SecretNotFound", f'Secret "{reference.name}" not found')
        return SecretTexts(reference.name, content)


def _short_text(texts: SecretTexts, key: str) -> str:
    """Return a Secret's text without the line break at its end. Raises Stalled if it is too long."""
    text = texts.text(key)
    if len(text) > MOST_CHARACTERS:
        raise texts.invalid(f"{key!r} has more than {MOST_CHARACTERS} characters")
    return text.rstrip("\r\n")


@contextlib.contextmanager
def _stall_on_refusal(setting: str) -> Iterator[None]:
    """Turn an AddressRefused of the block into Stalled."""
    try:
        yield
    except AddressRefused as error:
        raise Stalled("InvalidAddress", f"{setting} cannot be used: {error}") from error
