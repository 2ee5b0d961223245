"""FlagProvider: reads where to send and with which token, and keeps what waits to be sent in its status."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from controller.api.meta import TEST_ALERT
from controller.api.provider import FlagProviderSpec, FlagProviderStatus
from controller.notifications import messages
from controller.notifications.addresses import AddressRefused, require_proxy, require_usable
from controller.notifications.deliverer import DELIVERED
from controller.notifications.forms import incidents, services
from controller.notifications.forms.payloads import FORMS
from controller.notifications.forms.posts import Target, Way
from controller.notifications.forms.repositories import github_apps, servers
from controller.notifications.sending import nats
from controller.notifications.sending.apprise_sender import built
from controller.runtime.network.client_tls import context_of
from controller.runtime.reconciling.result import Done, Result, spec_of
from controller.runtime.reconciling.setbacks import Failed, Setback, Stalled, Waiting
from controller.runtime.user_text.secret_texts import SecretTexts, Tls, proxy_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from datetime import datetime

    from controller.api.fields import LocalReference
    from controller.api.meta import ObjectKey, Resource
    from controller.notifications.deliverer import Deliverer
    from controller.notifications.forms.repositories.github_apps import App
    from controller.notifications.outbox import Outbox


@dataclass(frozen=True, slots=True)
class FlagProviderReconciler:
    """The only one who writes the status while this replica leads, so that one write keeps all of it."""

    secret: Callable[[str, str], Awaitable[Mapping[str, bytes] | None]]
    """(namespace, name) -> a Secret's content, or None. Raises Failed."""
    newest: Callable[[ObjectKey], Awaitable[FlagProviderStatus]]
    """The status of a provider as the API server has it now. Raises Failed."""
    outbox: Outbox
    deliverer: Deliverer
    instance: str
    """The name of this replica."""
    allow_local: bool
    """Whether an address may be of this machine or of a private network, and plain http."""

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Keep what waits, and have it delivered where that is possible."""
        box = self.outbox.box(resource.key)
        if box is None:
            box = self.outbox.open(resource.key, await self.newest(resource.key))
        self.outbox.compare(resource)
        self.outbox.look(resource)
        asked = resource.annotations.get(TEST_ALERT)
        if asked is not None and asked != box.tested and len(asked) <= 253:
            box.push(messages.of_test(resource, asked, now))
            box.tested = asked
        outcome: Done | Setback
        next_look = box.next_look(now)
        try:
            target = await self._target(resource)
        except Setback as setback:
            outcome = setback
            next_look = setback.delay if next_look is None else next_look
            if not isinstance(setback, Failed):
                self.deliverer.shut(resource.key)
        else:
            outcome = Done(f"alerts are sent by {target.spec.type}")
            self.deliverer.use(resource.key, target)
        # What came of the last try, be it one of a leader before us.
        last = self.deliverer.last(resource.key) or FlagProviderStatus.of(resource).those(DELIVERED)
        return Result(outcome, status=box.status(), details=last, next_look=next_look)

    def forget(self, key: ObjectKey) -> None:
        """Forget it, and what waits to be sent."""
        self.deliverer.shut(key)
        self.outbox.forget(key)

    async def _target(self, resource: Resource) -> Target:
        """As spec and Secret say. Raises Setback."""
        spec = spec_of(FlagProviderSpec, resource)
        given = {} if spec.address is None else {"address": spec.address}
        app, login = None, None
        if (texts := await self._texts(resource.namespace, spec.secret_ref)) is not None:
            # Files end in a line break, and `kubectl create secret --from-file` keeps it.
            found = {key: texts.text(key).rstrip("\r\n") for key in ("address", "token")}
            given |= {key: text for key, text in found.items() if text}
            if spec.type in github_apps.TYPES:
                app = await asyncio.to_thread(github_apps.app_of, texts)
            if spec.type == "nats":
                login = nats.login_of(texts)
        needs = FORMS[spec.type].needs
        for key in needs:
            if not (given.get(key) or getattr(spec, key, None) or (key == "token" and app is not None)):
                raise Stalled(*_missing(spec, key))
        address = given.get("address", "")
        if "address" in needs or address:
            await self._judge(spec, address)
        scheme, host = self._asked(spec, address, app)
        if texts is not None:
            texts.require_host(host)
        way = await self._way(resource.namespace, spec, host)
        if texts is not None and way.proxy and scheme == "http":
            # A proxy reads what is sent in clear.
            texts.require_host(urlsplit(way.proxy).hostname or "")
        token = given.get("token", "") if app is None else ""
        return Target(spec, address, token, resource.namespace, self.instance, way, app, login)

    def _asked(self, spec: FlagProviderSpec, address: str, app: App | None) -> tuple[str, str]:
        """(scheme, host) of what is asked. Raises Stalled."""
        if app is not None and app.base:
            with _judged(github_apps.BASE):
                require_usable(app.base, allow_local=self.allow_local)
            parts = urlsplit(app.base)
            return parts.scheme, parts.hostname or ""
        if spec.type == services.APPRISE:
            return "https", services.known(address).host
        parts = urlsplit(address or FORMS[spec.type].server)
        host = parts.hostname or ""
        if spec.type in servers.TYPES:
            host = servers.API_HOSTS.get(host, host)
        return parts.scheme, host

    async def _judge(self, spec: FlagProviderSpec, address: str) -> None:
        """Raises Stalled for an address that cannot be used."""
        with _judged("the address"):
            if spec.type == services.APPRISE:
                services.require_secret(spec.address)
                await asyncio.to_thread(built, address)
                return
            if spec.type == services.EMAIL:
                services.require_mail(spec, address, allow_local=self.allow_local)
                return
            url = incidents.opened(address).url if spec.type == incidents.SENTRY else address
            require_usable(url, allow_local=self.allow_local, schemes=FORMS[spec.type].schemes)
            if spec.type in servers.TYPES:
                servers.require_repository(spec.type, address)
        if spec.type == "nats" and not nats.SUBJECT.fullmatch(spec.channel or ""):
            raise Stalled("InvalidSpec", "spec.channel: not a subject that can be published to")
        if spec.type == "nats" and spec.proxy_secret_ref is not None:
            raise Stalled("InvalidSpec", "spec.proxySecretRef: a provider of type nats is reached directly")

    async def _way(self, namespace: str, spec: FlagProviderSpec, host: str) -> Way:
        """How the host of the address is reached. Raises Setback."""
        tls, proxy, shown_to = Tls(), "", [host]
        if (texts := await self._texts(namespace, spec.proxy_secret_ref)) is not None:
            proxy = proxy_url(texts, ("http", "https"))
            parts = urlsplit(proxy)
            texts.require_host(parts.hostname or "")
            with _judged("the proxy"):
                require_proxy(proxy, allow_local=self.allow_local)
            if parts.scheme == "https":
                shown_to.append(parts.hostname or "")
        if (texts := await self._texts(namespace, spec.cert_secret_ref)) is not None:
            for each in shown_to:
                texts.require_host(each)
            tls = texts.tls()
            if not any(tls):
                raise texts.invalid("has neither 'ca.crt' nor 'tls.crt' with 'tls.key'")
            await asyncio.to_thread(context_of, tls)
        return Way(tls, proxy, namespace)

    async def _texts(self, namespace: str, reference: LocalReference | None) -> SecretTexts | None:
        if reference is None:
            return None
        content = await self.secret(namespace, reference.name)
        if content is None:
            raise Waiting("SecretNotFound", f'Secret "{reference.name}" not found')
        return SecretTexts(reference.name, content)


@contextlib.contextmanager
def _judged(what: str) -> Iterator[None]:
    """Raises Stalled where the block refuses an address."""
    try:
        yield
    except AddressRefused as error:
        raise Stalled("InvalidAddress", f"{what} cannot be used: {error}") from error


def _missing(spec: FlagProviderSpec, key: str) -> tuple[str, str]:
    """Reason and message for what a provider of this type cannot do without."""
    reason = f"{key.capitalize()}NotFound"
    if key in {"channel", "username"}:
        return reason, f"type {spec.type} needs spec.{key}"
    other = "spec.address, or " if key == "address" and spec.type != services.APPRISE else ""
    more = f', or those of a GitHub App: "{github_apps.ID}"' if spec.type in github_apps.TYPES else ""
    more = more if key == "token" else ""
    if spec.secret_ref is None:
        return reason, f'type {spec.type} needs {other}spec.secretRef: a Secret with a key "{key}"{more}'
    return reason, f'type {spec.type} needs {other}a key "{key}" in Secret "{spec.secret_ref.name}"{more}'
