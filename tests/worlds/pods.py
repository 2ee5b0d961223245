"""Pods that ask for an evaluator, and what is done to them; a Flagd in a cluster in memory."""

from __future__ import annotations

import base64
import copy
import json
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from controller.pods.installation import FlagSetFound, Options, PodRefused
from controller.pods.judging import MOST_WAITING, Judges
from controller.pods.pod_injection import inject
from controller.runtime.helpers import Helpers
from controller.runtime.limits import Places
from evaluator.http.messages import Request, Response, Streamed
from tests.worlds.evaluator import body_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from controller.pods.changes import ObjectPatch
    from controller.pods.installation import Known
    from controller.runtime.helper import TaskLimits
    from evaluator.http.routes import Routes

T = TypeVar("T")
OPTIONS = Options(image="example/evaluator:1", proxy_address="proxy:8015")


def pod(annotations: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """One with a container `app` that asks for the flag set `checkout`; None removes an annotation."""
    asked = {"openfeature.dev/enabled": "true", "flagstaff.dev/flagset": "checkout", **(annotations or {})}
    kept = {name: text for name, text in asked.items() if text is not None}
    containers = [{"name": "app", "image": "app:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "checkout", "annotations": kept},
        "spec": {"containers": containers, **spec},
    }


def marked_pod(name: str, annotations: dict[str, Any], **meta: Any) -> dict[str, Any]:
    """One as a watch reports it."""
    named = {"namespace": "shop", "name": name, "uid": f"uid-{name}", **meta}
    return {"metadata": {**named, "annotations": annotations}}


class Objects:
    """Every flag set is there, and FeatureFlagSources with these specs."""

    def __init__(self, **sources: Mapping[str, Any]) -> None:
        self._sources = sources

    def refer(
        self, reader: str, kinds: Sequence[str], namespace: str, name: str
    ) -> tuple[tuple[str, ...], str]:
        raise PodRefused(f"no pod of {reader} may refer to {kinds[0]} {namespace}/{name}")

    def flag_set(self, namespace: str, name: str, kinds: Sequence[str] = ()) -> FlagSetFound:
        del namespace, kinds
        return FlagSetFound(name, f"FlagSet/{name}", "main@sha1:46ead10f53b7")

    def spec(self, kind: str, namespace: str, name: str) -> Mapping[str, Any]:
        del kind
        assert namespace == "shop"
        return self._sources[name]


class Granted(Objects):
    """Pods may refer to all of them, in whatever namespace."""

    def refer(
        self, reader: str, kinds: Sequence[str], namespace: str, name: str
    ) -> tuple[tuple[str, ...], str]:
        del reader, namespace, name
        return tuple(kinds), ""

    def spec(self, kind: str, namespace: str, name: str) -> Mapping[str, Any]:
        del kind, namespace
        return self._sources[name]


KNOWN = Objects()


def changes_of(given: Mapping[str, Any], options: Options = OPTIONS, known: Known = KNOWN) -> ObjectPatch:
    """What is done to a pod of the namespace `shop`, which itself stays as it is."""
    before = copy.deepcopy(given)
    changes = inject(given, "shop", options, known)
    assert given == before
    assert changes is not None
    return changes


def inject_pod(given: Mapping[str, Any], options: Options = OPTIONS, known: Known = KNOWN) -> dict[str, Any]:
    """The pod afterwards."""
    return changes_of(given, options, known).after


def refusal_of(given: Mapping[str, Any], known: Known = KNOWN) -> str:
    """Why it is."""
    with pytest.raises(PodRefused) as refusal:
        inject(given, "shop", OPTIONS, known)
    return str(refusal.value)


def env(container: Mapping[str, Any]) -> dict[str, str]:
    """A container's variables, in order."""
    return {each["name"]: each["value"] for each in container["env"]}


def apply_patch(document: Mapping[str, Any], patch: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """RFC 6902, as far as it is used."""
    after: dict[str, Any] = json.loads(json.dumps(document))
    for operation in patch:
        *path, last = [
            step.replace("~1", "/").replace("~0", "~")
            for step in operation["path"].removeprefix("/").split("/")
        ]
        holder: Any = after
        for step in path:
            holder = holder[int(step) if isinstance(holder, list) else step]
        if operation["op"] == "remove":
            del holder[last]
        elif isinstance(holder, list):
            holder.insert(len(holder) if last == "-" else int(last), operation["value"])
        else:
            holder[last] = json.loads(json.dumps(operation["value"]))
    return after


class NoProcesses(Helpers):
    """Calls each function here."""

    async def run(self, limits: TaskLimits, function: Callable[..., T], /, *arguments: Any) -> T:
        del limits
        return function(*arguments)


def judges_at_once() -> Judges:
    """Judges that judge in this process."""
    return Judges(NoProcesses(), Places(2, most_waiting=MOST_WAITING))


def ask_webhook(routes: Routes, path: str, content: Any) -> Response | Streamed:
    """What a webhook answers to a body, or to what is written as JSON."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    answer = routes.http["POST", path](Request("POST", path, "", (), body, "127.0.0.1:1"))
    assert isinstance(answer, Response | Streamed)
    return answer


async def read_review(answer: Response | Streamed) -> tuple[int, dict[str, Any]]:
    """(status, the response to the review); without a response where the status is not 200."""
    body = answer.body if isinstance(answer, Response) else await body_of(answer)
    return answer.status, json.loads(body).get("response", {}) if answer.status == 200 else {}


def apply_response(given: Mapping[str, Any], response: Mapping[str, Any]) -> dict[str, Any]:
    """The object as the API server stores it after a review."""
    assert response["allowed"]
    return apply_patch(given, json.loads(base64.b64decode(response["patch"])) if "patch" in response else [])
