"""Evaluators that are Pods and nothing else: each Running Pod reports what the proxy delivers, and says no
goodbye when it is deleted.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from evaluator.wire.delivery import MARK, REPORT, MemberText
from evaluator.wire.delivery_pb2 import ReportRequest, ReportResponse
from tests.cluster.api import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.objects import Namespace

AT_ONCE: Final = 8
LOOK_SECONDS: Final = 0.5
BEAT_SECONDS: Final = 5.0
PATIENCE: Final = 30.0


@dataclass(frozen=True, slots=True)
class Serving:
    """What a proxy delivered, and when on time.monotonic's clock."""

    digest: str
    revision: str
    at: float
    replaced: bool


class Crowd:
    """All Pods with the label `app`, as members of the flag set of that name, at the proxy `target`."""

    def __init__(self, space: Namespace, target: str, app: str) -> None:
        self._space, self._target, self._app = space, target, app
        self._selector = f"{space.name}/{app}"
        self._stop = threading.Event()
        self._serving: Serving | None = None
        self._reported: dict[str, tuple[str, float]] = {}
        """By uid: the digest that a Pod reported last, and when."""

    def run(self) -> None:
        """Report until stopped."""
        with grpc.insecure_channel(self._target) as channel, ThreadPoolExecutor(AT_ONCE + 1) as pool:
            report = channel.unary_unary(
                REPORT,
                request_serializer=ReportRequest.SerializeToString,
                response_deserializer=ReportResponse.FromString,
            )
            stream: Any = sync_pb2_grpc.FlagSyncServiceStub(channel).SyncFlags(
                sync_pb2.SyncFlagsRequest(selector=self._selector), metadata=((MARK, "1"),)
            )
            following = pool.submit(self._follow, stream)
            while not self._stop.wait(LOOK_SECONDS):
                asked = pool.map(lambda each: report(each, timeout=PATIENCE), self._due())
                assert all(answer.next_ms for answer in asked)
            stream.cancel()
            following.result()

    def stop(self) -> None:
        """Fall silent."""
        self._stop.set()

    def pods(self) -> list[dict[str, Any]]:
        """All that are there, in whatever state."""
        path = path_of("pod", self._space.name)
        return self._space.api.items(f"{path}?labelSelector=app={self._app}")

    def _follow(self, stream: Any) -> None:
        with contextlib.suppress(grpc.RpcError):
            for message in stream:
                metadata = json.loads(message.flag_configuration)["metadata"]
                self._serving = Serving(
                    metadata["flagstaff.dev/digest"],
                    metadata.get("flagstaff.dev/revision", ""),
                    time.monotonic(),
                    self._serving is not None,
                )
        assert self._stop.is_set(), "the stream ended"

    def _due(self) -> Iterator[ReportRequest]:
        """What is to be said now: by who is new, by all after a change, and by who said nothing
        for a while.
        """
        serving, now = self._serving, time.monotonic()
        running = [each for each in self.pods() if each["status"].get("phase") == "Running"]
        uids = {each["metadata"]["uid"] for each in running}
        self._reported = {uid: last for uid, last in self._reported.items() if uid in uids}
        for pod in running if serving is not None else ():
            assert serving is not None
            uid = pod["metadata"]["uid"]
            digest, at = self._reported.get(uid, ("", 0.0))
            if digest != serving.digest or now - at > BEAT_SECONDS:
                self._reported[uid] = serving.digest, now
                yield self._request(pod, serving, bool(digest))

    def _request(self, pod: dict[str, Any], serving: Serving, known: bool) -> ReportRequest:
        meta = pod["metadata"]
        member = MemberText(
            meta["uid"], meta["namespace"], meta["name"], meta["uid"], pod["spec"]["nodeName"], "0"
        )
        return ReportRequest(
            member=member.message(),
            selector=self._selector,
            digest=serving.digest,
            revision=serving.revision,
            served_for_ms=round((time.monotonic() - serving.at) * 1000),
            replaced=known and serving.replaced,
        )


@contextlib.contextmanager
def crowd(space: Namespace, target: str, app: str) -> Iterator[Crowd]:
    """A crowd for as long as the block lasts; what went wrong in it is raised at the end."""
    made = Crowd(space, target, app)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(made.run)
        try:
            yield made
        finally:
            made.stop()
        running.result(PATIENCE)
