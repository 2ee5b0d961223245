"""One call of a unary handler that came as a plain request, in whatever protocol."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from evaluator.http.deferred import Deferred
from evaluator.http.messages import Response, RpcError, too_late
from evaluator.http.server.stream import failed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from evaluator.http.messages import Call
    from evaluator.http.routes import UnaryHandler


@dataclass(frozen=True, slots=True)
class UnaryFraming:
    """How a protocol writes the one message of a call into a response, or why there is none."""

    answered: Callable[[bytes], Response]
    refused: Callable[[RpcError], Response]


def call_unary(
    handler: UnaryHandler,
    call: Call,
    message: bytes,
    framing: UnaryFraming,
    left: float | None = None,
) -> Response | Deferred[Response]:
    """The handler's answer, or its error, as a response. left: seconds that the caller still waits."""
    if left is not None and left <= 0:
        return framing.refused(too_late())
    try:
        answer = handler(call, message)
    except RpcError as error:
        return framing.refused(error)
    except Exception:  # noqa: BLE001 - failed logs it
        return framing.refused(failed(call.path))
    if not isinstance(answer, Deferred):
        return framing.answered(answer)
    return Deferred(answer.through(partial(_later, call, framing)).steps, left)


def _later(
    call: Call, framing: UnaryFraming, steps: Generator[None, None, bytes]
) -> Generator[None, None, Response]:
    try:
        message = yield from steps
    except RpcError as error:
        return framing.refused(error)
    except Exception:  # noqa: BLE001 - failed logs it
        return framing.refused(failed(call.path))
    return framing.answered(message)
