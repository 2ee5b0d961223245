"""Which pods of a node have an address, and which flag sets each may have: for the evaluator that serves all
pods of its node.

The caller's token names its pod, and that pod's node is the only one of which pods are named. With `enforce`
a pod's service account must have the right to `get` a set, as if the pod had asked for it by itself.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from google.protobuf.message import DecodeError

from controller.proxy.authorizer import ENFORCE
from controller.proxy.catalog import Named, parse
from controller.proxy.users import User, bearer
from controller.runtime.setbacks import Failed
from evaluator.http.messages import Call, Code, MessageStream, RpcError, host_of
from evaluator.http.routes import Routes
from evaluator.wire.delivery import IDENTIFY
from evaluator.wire.delivery_pb2 import IdentifiedPod, IdentifyRequest, IdentifyResponse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.proxy.access import AccessReviews
    from controller.proxy.users import Caller
    from evaluator.wire.delivery_pb2 import Member

log = logging.getLogger(__name__)

MOST_ASKED: Final = 2_000
"""Addresses in one request: four times the pods of a large node."""
MOST_NODES: Final = 20_000
"""Evaluators of nodes that are remembered with their pods."""


@dataclass(frozen=True, slots=True)
class NodePod:
    """A pod that runs on a node."""

    namespace: str
    name: str
    uid: str
    account: str
    """Its service account."""
    addresses: frozenset[str]
    """Empty where it shares those of the node: then it cannot be told from others."""
    flag_sets: tuple[str, ...]
    """Selectors of those that it was given at its creation; none: it does not ask the node's evaluator."""


class NodePods(Protocol):
    """What the cluster knows of pods on nodes."""

    async def node_of(self, namespace: str, name: str, uid: str) -> str:
        """The node of a pod; empty: there is no such pod, or it has none. Raises Failed."""

    async def on_node(self, node: str) -> Sequence[NodePod]:
        """All pods of a node that run. Raises Failed."""


class NodeEvaluators:
    """Answers evaluators of nodes, and lets them report in the names of their pods."""

    def __init__(self, account: str, mode: str, access: AccessReviews, pods: NodePods) -> None:
        """`account`: `namespace/name` of the service account of these evaluators; empty: there are none."""
        namespace, _, name = account.partition("/")
        self._user = f"system:serviceaccount:{namespace}:{name}" if name else ""
        self._mode = mode
        self._access = access
        self._pods = pods
        self._nodes: dict[str, str] = {}
        """The node of each evaluator, by the uid of its pod."""
        self._named: dict[str, Mapping[str, tuple[str, str]]] = {}
        """(namespace, name) of each pod that was named to an evaluator, by uid, by the evaluator's pod."""
        self._tasks: set[asyncio.Task[None]] = set()

    def routes(self) -> Routes:
        """The method, as a stream of one message: a token may have to be reviewed first."""
        return Routes(streams={IDENTIFY: self._open}) if self._user else Routes()

    def represented(self, caller: Caller | None, member: Member) -> Caller | None:
        """The pod in whose name an evaluator of its node reports; otherwise the caller."""
        if caller is None or not caller.verified:
            return caller
        pod = self._named.get(caller.pod_uid, {}).get(member.pod_uid)
        if pod is None:
            return caller
        return caller.of_pod(*pod, member.pod_uid)

    def close(self) -> None:
        """Answer nobody any more."""
        for task in tuple(self._tasks):
            task.cancel()

    def _open(self, call: Call, message: bytes, stream: MessageStream) -> None:
        try:
            request = IdentifyRequest.FromString(message)
        except DecodeError as error:
            raise RpcError(Code.INVALID_ARGUMENT, "malformed request") from error
        if len(request.asked) > MOST_ASKED:
            raise RpcError(Code.INVALID_ARGUMENT, f"ask for at most {MOST_ASKED} addresses")
        task = asyncio.get_running_loop().create_task(self._answer(call, request, stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        stream.on_closed = lambda: _cancel(task)

    async def _answer(self, call: Call, request: IdentifyRequest, stream: MessageStream) -> None:
        try:
            answer = await self._identify(call, request)
        except RpcError as error:
            stream.close(error.code, error.message)
        except Failed as failure:
            log.warning("pods of a node cannot be named: %s", failure.message)
            stream.close(Code.UNAVAILABLE, "the cluster cannot be asked at the moment")
        except Exception:
            log.exception("%s failed", call.path)
            stream.close(Code.INTERNAL, "internal error")
        else:
            stream.send(answer.SerializeToString())
            stream.close()

    async def _identify(self, call: Call, request: IdentifyRequest) -> IdentifyResponse:
        token = bearer(call)
        user = None if token is None else await self._access.user(token, host_of(call.peer))
        if user is None:
            raise RpcError(Code.UNAUTHENTICATED, "send the token of the evaluator's service account")
        caller = user.caller
        if user.name != self._user or not caller.pod_uid:
            raise RpcError(Code.PERMISSION_DENIED, f"{user.name} is no evaluator of a node")
        pods = await self._pods.on_node(await self._node(caller))
        by_address: dict[str, NodePod | None] = {}
        for pod in pods:
            for address in pod.addresses:
                # Of two pods with one address, one has gone: nobody knows which until the list says so.
                by_address[address] = None if address in by_address else pod
        self._named[caller.pod_uid] = {
            pod.uid: (pod.namespace, pod.name) for pod in pods if pod.addresses and pod.flag_sets
        }
        while len(self._named) > MOST_NODES:
            self._named.pop(next(iter(self._named)))
        found = [await self._judge(by_address.get(asked.address), asked.selector) for asked in request.asked]
        return IdentifyResponse(pods=found)

    async def _node(self, caller: Caller) -> str:
        if caller.pod_uid not in self._nodes:
            node = await self._pods.node_of(caller.namespace, caller.pod, caller.pod_uid)
            if not node:
                raise RpcError(Code.UNAVAILABLE, f"the node of pod {caller.pod} is not known yet")
            while len(self._nodes) >= MOST_NODES:
                self._nodes.pop(next(iter(self._nodes)))
            self._nodes[caller.pod_uid] = node
        return self._nodes[caller.pod_uid]

    async def _judge(self, pod: NodePod | None, selector: str) -> IdentifiedPod:
        if pod is None:
            return IdentifiedPod(refusal="no pod of this node has this address by itself")
        if not pod.flag_sets:
            return IdentifiedPod(
                refusal=f"pod {pod.namespace}/{pod.name} was not given to the node's evaluator: set the "
                "annotation flagstaff.dev/evaluator to node and create it anew"
            )
        asked = [selector] if selector else pod.flag_sets
        for each in asked:
            if (refusal := await self._refusal(pod, each)) is not None:
                return IdentifiedPod(refusal=refusal)
        return IdentifiedPod(namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid, flag_sets=asked)

    async def _refusal(self, pod: NodePod, selector: str) -> str | None:
        try:
            topic = parse(selector)
        except RpcError as error:
            return error.message
        if not isinstance(topic, Named):
            return f"{selector}: ask for a flag set as NAMESPACE/NAME"
        if self._mode != ENFORCE:
            return None
        name = f"system:serviceaccount:{pod.namespace}:{pod.account}"
        groups = ("system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{pod.namespace}")
        if await self._access.may_read(User(name, groups=groups), (topic.namespace, topic.name)):
            return None
        return f"{name} may not get {topic}"


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
