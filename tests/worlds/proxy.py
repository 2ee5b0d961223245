"""A proxy without ports or a cluster: a test puts objects and opens streams, and a token is the name of
its client.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2

from controller.api import flagoverride, flagrollout
from controller.api import flagshard as shard
from controller.api.featureflagconfiguration import FLAG_KIND, KIND
from controller.api.meta import ObjectKey
from controller.proxy.access import AccessReviews
from controller.proxy.contents import SetPart
from controller.proxy.receipts import ExpectedDigest, MemberClaims, Receipts
from controller.proxy.server import Proxy, ProxyOptions, ReceiptPorts
from controller.proxy.users import Caller, User
from controller.proxy.watch import DELIVERING, PodUids
from controller.runtime.setbacks import Failed
from evaluator.http.messages import Call, Code, RpcError
from evaluator.wire.delivery import REPORT
from evaluator.wire.delivery_pb2 import Member, ReportRequest, ReportResponse
from evaluator.wire.sync_messages import OLD_SERVICE, SERVICE
from tests.worlds.evaluator import FakeStream, answer_of
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from controller.delivery.claims import Place
    from controller.proxy.node_pods import NodePod

SYNC = SERVICE + "SyncFlags"
FETCH = SERVICE + "FetchAllFlags"
OLD_SYNC = OLD_SERVICE + "SyncFlags"
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
_numbers = itertools.count(1)
PLACE = ("shop", "flags")
DIGEST = "sha256:new"
OWNER = thing("FeatureFlagConfiguration", "flags")


@dataclass
class FakeReviews:
    """A token is its user's name, one that begins with `pod-` a pod's, as is one that ends with `#pod-…`;
    `rights` says which places each may read.
    """

    rights: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    down: bool = False
    asked: list[tuple[str, ...]] = field(default_factory=list)

    async def user(self, token: str) -> User | None:
        await asyncio.sleep(0)
        self.asked.append((token,))
        self._reach()
        name, _, more = token.partition("#")
        pod = more if more.startswith("pod-") else name
        extra = ((POD_NAME, (pod,)), (POD_UID, (f"u-{pod}",))) if pod.startswith("pod-") else ()
        return User(name, extra=extra) if name in self.rights else None

    async def may_read(self, user: User, namespace: str, name: str) -> bool:
        await asyncio.sleep(0)
        self.asked.append((user.name, namespace, name))
        self._reach()
        return (namespace, name) in self.rights[user.name]

    def _reach(self) -> None:
        if self.down:
            raise Failed("ApiServerUnavailable", "down")


@dataclass
class FakeNodes:
    """Pods by node; the evaluator's pod of a token `…#pod-N` runs on the node `N`."""

    pods: dict[str, list[NodePod]] = field(default_factory=dict)

    async def node_of(self, namespace: str, name: str, uid: str) -> str:
        del namespace, uid
        return name.removeprefix("pod-")

    async def on_node(self, node: str) -> list[NodePod]:
        return self.pods.get(node, [])


def flags(value: str = "v", **metadata: Any) -> dict[str, Any]:
    """A document with one flag that says `value`."""
    flag = {"state": "ENABLED", "variants": {"on": value}, "defaultVariant": "on"}
    return {"flags": {"hello": flag}, **({"metadata": metadata} if metadata else {})}


def large(value: str) -> dict[str, Any]:
    """A document that is built in a thread."""
    padding = {"variants": {"on": "x" * 30_000}, "defaultVariant": "on", "state": "ENABLED"}
    document = flags(value)
    document["flags"]["padding"] = padding
    return document


class Scene:
    """One proxy."""

    def __init__(
        self, auth: str = "off", *, synced: bool = True, order_kinds: Collection[str] = (), **options: Any
    ) -> None:
        loop = asyncio.get_running_loop()
        self.reviews = FakeReviews()
        self.now = 1_000.0
        self.access = AccessReviews(self.reviews, clock=lambda: self.now, unix_time=lambda: self.now)
        limits = {"max_streams": 100, "max_streams_per_host": 100, "stream_seconds": 0, **options}
        self.pods = PodUids()
        self.nodes = FakeNodes()
        self.proxy = Proxy(
            ProxyOptions(context={"region": "eu"}, auth=auth, **limits),
            self.access,
            ReceiptPorts(self.pods, self.nodes, lambda: self.now),
            loop,
            order_kinds=order_kinds,
        )
        self.informer = self.proxy.informer
        self.routes = self.proxy.routes()
        self._hosts = itertools.count(1)
        if synced:
            self.sync()

    def sync(self) -> None:
        for kind in DELIVERING:
            self.informer.end_listing(kind, "")

    def learn(self, place: str, document: Any, kind: str = KIND, **meta: Any) -> None:
        """An object's new content; `spec=` says it otherwise than by flagSpec."""
        namespace, _, name = place.partition("/")
        number, status = next(_numbers), meta.pop("status", None)
        body = {
            "apiVersion": "core.openfeature.dev/v1beta1",
            "metadata": {"namespace": namespace, "name": name, "uid": f"{kind}-{place}", "generation": number,
                         "resourceVersion": str(number), "creationTimestamp": "2026-01-01T00:00:00Z", **meta},
            "spec": document if "shards" in document or "digest" in document else {"flagSpec": document},
            "status": status,
        }  # fmt: skip
        self.informer.learn(kind, json.loads(json.dumps(body)))

    def override(self, name: str, flag_set: str, **spec: Any) -> None:
        """A FlagOverride `NAMESPACE/NAME` of a flag set's `hello`, by default until one second from now."""
        namespace, _, name = name.partition("/")
        number, status = next(_numbers), spec.pop("status", None)
        expires = datetime.fromtimestamp(self.now + 1, UTC).isoformat()
        wanted = {"flagSetRef": {"name": flag_set}, "flag": "hello", "reason": "INC-1", "expiresAt": expires}
        self.informer.learn(flagoverride.KIND, {
            "apiVersion": "flagstaff.dev/v1beta1",
            "metadata": {"namespace": namespace, "name": name, "uid": f"o-{name}", "generation": number,
                         "resourceVersion": str(number), "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {**wanted, **spec},
            "status": status,
        })  # fmt: skip

    def rollout(self, name: str, flag_set: str, **status: Any) -> None:
        """A FlagRollout `NAMESPACE/NAME` of all flags of a flag set, with this status."""
        namespace, _, name = name.partition("/")
        number = str(next(_numbers))
        self.informer.learn(flagrollout.KIND, {
            "apiVersion": "flagstaff.dev/v1beta1",
            "metadata": {"namespace": namespace, "name": name, "uid": f"r-{name}", "generation": 1,
                         "resourceVersion": number, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"flagSetRef": {"name": flag_set}, "flags": ["*"], "steps": [{"share": 10}]},
            "status": status,
        })  # fmt: skip

    def shard(self, place: str, document: Mapping[str, Any]) -> None:
        namespace, _, name = place.partition("/")
        self.learn(f"{namespace}/{name}", {"digest": name, "flagSpec": document}, shard.KIND)

    def forget(self, place: str, kind: str = KIND) -> None:
        self.informer.forget(ObjectKey(kind, *place.split("/")))

    def open(
        self, selector: str, token: str = "", *, path: str = SYNC, host: str = "", writable: bool = True
    ) -> FakeStream:
        """A stream; one that is refused at once has ended with that."""
        headers = (("authorization", f"Bearer {token}"),) if token else ()
        peer = f"{host or f'10.0.0.{next(self._hosts)}'}:1234"
        message = sync_pb2.SyncFlagsRequest(selector=selector).SerializeToString()
        stream = FakeStream(writable=writable)
        try:
            self.routes.streams[path](Call(path, headers, peer), message, stream)
        except RpcError as error:
            stream.close(error.code, error.message)
        return stream

    async def report(self, say: Callable[[], None]) -> None:
        """As an evaluator does: again once, where it is asked to. Raises RpcError."""
        try:
            say()
        except RpcError as error:
            if error.code is not Code.UNAVAILABLE:
                raise
            await self.rest()
            say()

    async def rest(self) -> None:
        """Until nothing is under way: no review, no thread, no slice of the hub."""
        contents, reviews = self.proxy.deliveries.contents, (self.proxy.authorizer, self.proxy.views)
        quiet = 0
        for _ in range(5_000):
            building = contents.building or self.proxy.deliveries.ordered.composed.building
            await asyncio.sleep(0.001 if building else 0)
            busy = building or any(each.busy for each in reviews)
            quiet = 0 if busy else quiet + 1
            if quiet > 20:
                return
        raise AssertionError("it never comes to rest")


def sent_values(stream: FakeStream) -> list[str]:
    """What the flag `hello` said, message by message."""
    return [_value(each) for each in stream.sent]


def keys(stream: FakeStream) -> list[set[str]]:
    """The flags, message by message."""
    return [set(_document(each)["flags"]) for each in stream.sent]


def _value(message: bytes) -> str:
    return str(_document(message)["flags"]["hello"]["variants"]["on"])


def _document(message: bytes) -> Any:
    return json.loads(sync_pb2.SyncFlagsResponse.FromString(message).flag_configuration)


FEATURE_FLAG = FLAG_KIND


@dataclass
class ReceiptScene:
    """What is around the service that receipts are sent to."""

    now: float = 1000.0
    expected: ExpectedDigest | None = field(default_factory=lambda: ExpectedDigest(OWNER, DIGEST, 990.0))
    caller: Caller | None = None
    changed: list[Place] = field(default_factory=list)

    def has_ended(self, uid: str) -> bool:
        return uid == "u-ended"

    def receipts(self, changed: Callable[[Place], None] | None = None) -> Receipts:
        return Receipts(
            parts=self.parts, expected=lambda _: self.expected, caller=lambda _: self.caller,
            pods=self, clock=lambda: self.now, changed=changed or self.changed.append,
        )  # fmt: skip

    def parts(self, selector: str, _: Call, claims: MemberClaims) -> list[SetPart]:
        if selector == "forbidden":
            raise RpcError(Code.PERMISSION_DENIED, "no")
        return [SetPart(PLACE, claims.digest, claims.revision)] if selector == "shop/flags" else []


def call(path: str = REPORT, peer: str = "10.0.0.1:1", **headers: str) -> Call:
    return Call(path, tuple(headers.items()), peer)


def report(
    receipts: Receipts, pod: str = "checkout-1", peer: str = "10.0.0.1:1", **fields: Any
) -> ReportResponse:
    member = Member(instance=f"i-{pod}", namespace="shop", pod=pod, pod_uid=f"u-{pod}")
    said = {"member": member, "selector": "shop/flags", "digest": DIGEST, "served_for_ms": 9000}
    request = ReportRequest(**cast("dict[str, Any]", said | fields))
    answer = receipts.routes().unary[REPORT](call(peer=peer), request.SerializeToString())
    return ReportResponse.FromString(answer_of(answer))
