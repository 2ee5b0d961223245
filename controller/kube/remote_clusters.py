"""The API servers of other clusters, which FlagSets write to.

Requests go by the HTTP client for servers that users name: it connects to judged addresses alone, follows no
redirect, reads bounded answers, and gives a server that hangs no more than its namespace's share.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import orjson

from controller.api.flagset import LABEL, manager_of, owned_by_flag_set
from controller.api.kinds import DELIVERED
from controller.api.meta import ObjectKey, Resource
from controller.api.parsing import InvalidTextError
from controller.flagsets.places import MISSING
from controller.kube.answers import ServiceAccount, grant_of_refused
from controller.kube.client import ClusterWriter
from controller.kube.remote_access import Access, read_kubeconfig, read_token_access
from controller.runtime.http_client import Cause, HttpClient, RequestError, Route, read_all
from controller.runtime.secret_texts import binding_of
from controller.runtime.setbacks import Failed, Setback, Stalled, Waiting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.api.kube_config import KubeConfig
    from controller.kube.client import Accounts


REASON: Final = "InvalidKubeConfig"


@dataclass(slots=True)
class AnswerBudget:
    """What may be read of a cluster in one reconcile: somewhat more than the largest flag set has."""

    requests: int = 2_000
    content: int = 96 * 1024 * 1024
    """Bytes."""
    values: int = 4_000_000
    """A value takes some 60 bytes of memory, however short it is written."""

    def spend(self, content: bytes) -> None:
        """Count an answer before it is parsed. Raises Failed."""
        self.requests -= 1
        self.content -= len(content)
        self.values -= sum(content.count(mark) for mark in (b",", b"{", b"["))
        if min(self.requests, self.content, self.values) < 0:
            raise Failed("ApiServerFailed", "its answers are larger than a flag set can be")


@dataclass(frozen=True, slots=True)
class _RemoteTransport:
    """Implements `controller.kube.requests.ApiTransport`."""

    http: HttpClient
    access: Access
    namespace: str
    """Whose share of the connections is used."""
    seconds: float
    """For one request and its whole answer."""
    budget: AnswerBudget = field(default_factory=AnswerBudget)

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | list[dict[str, Any]] | None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """See ApiTransport."""
        token = {"Authorization": f"Bearer {self.access.token}"} if self.access.token else {}
        tls, namespace = self.access.tls, self.namespace
        route = Route(tls=tls, only_authority=True, namespace=namespace, seconds=self.seconds)
        url = f"{self.access.server}{target}"
        data = b"" if body is None else orjson.dumps(body)
        try:
            sent = {**headers, **token}
            async with self.http.request(method, url, headers=sent, data=data, route=route) as answer:
                content = await read_all(answer, self.budget.content)
                self.budget.spend(content)
                return answer.status, answer.headers, content
        except RequestError as error:
            remedy = "; correct the authority in the kubeconfig" if error.cause is Cause.CERTIFICATE else ""
            raise Failed("ApiServerUnavailable", f"{error.message}{remedy}") from error
        except Stalled as stalled:
            if stalled.reason != "InvalidSecret":
                raise
            why = stalled.message.partition(": ")[2]
            raise Stalled(REASON, f"the certificates of its kubeconfig cannot be used: {why}") from stalled


_MISSING: Final = "could not find the requested resource"


class RemoteCluster(ClusterWriter):
    """One other cluster, with the rights of its kubeconfig's user or of a service account there. Implements
    `controller.flagsets.places.RemoteObjects`. Every setback names the cluster.
    """

    def __init__(
        self, transport: _RemoteTransport, acting: ServiceAccount | None, local: ClusterWriter
    ) -> None:
        """`local`: our own cluster, whose leader alone may write."""
        super().__init__(transport, acting=acting, wrote=local.begin_write)
        self.server = transport.access.server
        self._token = transport.access.token

    async def written_by(self, flag_set: ObjectKey) -> list[Resource]:
        """See RemoteObjects."""
        label, manager = f"{LABEL}={flag_set.name}", manager_of(flag_set)
        written = []
        with self._in_words(flag_set.namespace):
            for type_ in DELIVERED:
                version, plural = type_.api_version, type_.plural
                bodies = await self.everywhere(version, plural, (flag_set.namespace,), labels=label)
                # Items of a list do not name their kind.
                written += [
                    Resource.of({**body, "apiVersion": version, "kind": type_.kind}) for body in bodies
                ]
        return [one for one in written if manager in one.managers and not owned_by_flag_set(one)]

    async def find(self, key: ObjectKey) -> Resource | None:
        """See RemoteObjects."""
        version = next(type_.api_version for type_ in DELIVERED if type_.kind == key.kind)
        with self._in_words(key.namespace):
            body = await self.get(version, key.kind, key.namespace, key.name)
        return None if body is None else Resource.of(body)

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        """See Applier."""
        with self._in_words(manifest["metadata"]["namespace"]):
            return await super().apply(manifest, manager=manager)

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = "", version: str = ""
    ) -> None:
        """See Applier."""
        with self._in_words(namespace):
            await super().delete(api_version, kind, namespace, name, uid=uid, version=version)

    def _granting_delivery(self, namespace: str) -> contextlib.AbstractContextManager[None]:
        """The command comes with the words of `_in_words`."""
        del namespace
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def _in_words(self, namespace: str) -> Iterator[None]:
        """Name the cluster in a setback that the block raises, and how to grant there what lacks."""
        try:
            yield
        except Setback as setback:
            remedy = ""
            if setback.reason == "AccessDenied":
                command = grant_of_refused(setback.message, namespace, "flagstaff-delivery")
                remedy = (
                    f"; in that cluster: {command}" if command else "; the credentials are not accepted there"
                )
            elif _MISSING in setback.message:
                remedy = "; install Flagstaff's CustomResourceDefinitions there"
            # The words of a server that is not ours may repeat what it was shown.
            words = setback.message.replace(self._token, "…") if self._token else setback.message
            message = f"cluster {self.server}: {words}{remedy}"
            raise type(setback)(setback.reason, message, delay=setback.delay) from setback


@dataclass(frozen=True, slots=True)
class KubeConfigClusters:
    """Opens them. Implements `controller.flagsets.places.RemoteClusters`."""

    accounts: Accounts
    http: HttpClient
    """For servers that kubeconfigs may name."""
    seconds: float = 10.0
    """For one request and its whole answer."""

    async def open(self, namespace: str, config: KubeConfig, account: str | None) -> RemoteCluster:
        """See the port."""
        with _in_config(config, namespace):
            if config.secret_ref is not None:
                access = await self._access_of_secret(namespace, config)
            else:
                access = await self._access_of_config_map(namespace, config)
        acting = None if account is None else ServiceAccount(namespace, account)
        local = self.accounts.cluster
        return RemoteCluster(_RemoteTransport(self.http, access, namespace, self.seconds), acting, local)

    async def set_finalizers(self, resource: Resource, finalizers: tuple[str, ...]) -> Resource | None:
        """See the port."""
        return await self.accounts.cluster.set_finalizers(resource, finalizers)

    async def _access_of_secret(self, namespace: str, config: KubeConfig) -> Access:
        reference = config.secret_ref
        assert reference is not None  # noqa: S101 - see `open`
        content = await self.accounts.secret(namespace, reference.name)
        if content is None:
            raise _absent(config, namespace)
        keys = (reference.key,) if reference.key is not None else ("value", "value.yaml")
        text = next((content[key] for key in keys if key in content), None)
        if text is None:
            raise InvalidTextError(f"it has no key {' or '.join(map(repr, keys))}")
        access = read_kubeconfig(text)
        binding_of(content).require(urlsplit(access.server).hostname or "")
        return access

    async def _access_of_config_map(self, namespace: str, config: KubeConfig) -> Access:
        reference = config.config_map_ref
        assert reference is not None  # noqa: S101 - see `open`
        data = await self.accounts.config_map(namespace, reference.name)
        if data is None:
            raise _absent(config, namespace)
        given = read_token_access(data)
        client = self.accounts.client(namespace)
        token = await client.token(namespace, given.account, given.audiences)
        return Access(given.server, given.tls, token)


def _absent(config: KubeConfig, namespace: str) -> Waiting:
    return Waiting(
        MISSING, f"{_title(config, namespace)} does not exist; create it, or correct spec.kubeConfig"
    )


def _title(config: KubeConfig, namespace: str) -> str:
    kind, _, name = str(config).partition(" ")
    return f"{kind} {namespace}/{name}"


@contextlib.contextmanager
def _in_config(config: KubeConfig, namespace: str) -> Iterator[None]:
    """Raise Stalled for what is wrong in the object that `config` names."""
    try:
        yield
    except InvalidTextError as error:
        raise Stalled(REASON, f"{_title(config, namespace)}: {error}") from None
