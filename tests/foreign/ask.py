"""Asks flagd's published provider for Python; the arguments and the lines are those of tests/node/ask.mjs.

ASK_TOKEN is a bearer token that is sent over TLS, with the authority of FLAGD_SERVER_CERT_PATH.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.evaluation_context import EvaluationContext
from openfeature.event import EventDetails, ProviderEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from openfeature.client import OpenFeatureClient
    from openfeature.flag_evaluation import FlagEvaluationDetails


def say(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


class Token(grpc.AuthMetadataPlugin):
    """Sends the token with each call, as docs/in-process.md has it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        callback((("authorization", f"Bearer {self._text}"),), None)


def credentials() -> grpc.ChannelCredentials | None:
    token = os.environ.get("ASK_TOKEN")
    if not token:
        return None
    transport = grpc.ssl_channel_credentials(Path(os.environ["FLAGD_SERVER_CERT_PATH"]).read_bytes())
    return grpc.composite_channel_credentials(transport, grpc.metadata_call_credentials(Token(token)))


def answer(client: OpenFeatureClient, kind: str, key: str, fallback: Any, context: Any) -> dict[str, Any]:
    where = EvaluationContext(context.get("targetingKey"), context)
    ask: dict[str, Callable[..., FlagEvaluationDetails[Any]]] = {
        "boolean": client.get_boolean_details,
        "string": client.get_string_details,
        "number": client.get_float_details,
        "object": client.get_object_details,
    }
    details = ask[kind](key, fallback, where)
    code = {} if details.error_code is None else {"errorCode": details.error_code.value}
    return {"value": details.value, "variant": details.variant, "reason": details.reason, **code}


def say_changed(details: EventDetails) -> None:
    del details
    say({"event": "changed"})


def main() -> None:
    provider, port = sys.argv[1:]
    resolver = ResolverType.IN_PROCESS if provider == "flagd-in-process" else ResolverType.RPC
    published = FlagdProvider(
        host="127.0.0.1", port=int(port), resolver_type=resolver, channel_credentials=credentials()
    )
    api.add_handler(ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, say_changed)
    api.set_provider_and_wait(published)
    client = api.get_client()
    say({"event": "ready"})
    for line in sys.stdin:
        asked = json.loads(line)
        say(answer(client, asked["kind"], asked["key"], asked["fallback"], asked["context"]))
    api.shutdown()


if __name__ == "__main__":
    main()
