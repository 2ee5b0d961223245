"""A published Python core of flagd behind a pipe: JSON lines in, JSON lines out. Runs in the core's own
environment.

In: {"definitions": text, "now": Unix seconds, "asks": [{"key", "type", "targetingKey", "attributes"}]}. Out:
{"answers": [{"value", "variant", "reason", "error", "metadata", "calls"}]}; `error` is OpenFeature's code or,
where the core let a Python exception out, its name after "CRASH ". `calls` are the operators that were
evaluated, outermost first: {"name", "raw": arguments as written, "parts": what was evaluated for it, in
order, "result", "scope"}; the last two are absent if it raised, and if its variables were the context's.
"""

from __future__ import annotations

import importlib
import io
import json
import logging
import sys
from types import SimpleNamespace
from typing import Any

from openfeature.contrib.tools.flagd.core import FlagdCore
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import OpenFeatureError

ENGINE: Any = importlib.import_module("json_logic.apply")
TARGETING: Any = importlib.import_module("openfeature.contrib.tools.flagd.core.targeting.targeting")
DEFAULTS: dict[str, Any] = {"boolean": False, "string": "", "integer": 0, "float": 0.0, "object": {}}


class Recorder:
    """Stands in the engine's place and notes what each operator was given and came to."""

    def __init__(self, apply: Any) -> None:
        self.apply = apply
        self.calls: list[dict[str, Any]] = []
        self.parts: list[Any] = []
        self.root: Any = None

    def start(self, rule: Any, scope: Any, operations: Any) -> Any:
        self.root = scope
        self.calls, self.parts = [], []
        return self.evaluate(rule, scope, operations)

    def evaluate(self, node: Any, scope: Any, operations: Any) -> Any:
        outer, self.parts = self.parts, []
        call = None
        if isinstance(node, dict) and len(node) == 1:
            ((name, raw),) = node.items()
            call = {"name": name, "raw": raw, "parts": self.parts}
            if scope is not self.root:
                call["scope"] = scope
            self.calls.append(call)
        result = self.apply(node, scope, operations)
        if call is not None:
            call["result"] = result
        self.parts = outer
        outer.append(result)
        return result


def answer(core: FlagdCore, recorder: Recorder, ask: dict[str, Any]) -> dict[str, Any]:
    context = EvaluationContext(ask["targetingKey"], ask["attributes"])
    recorder.calls = []
    try:
        found = getattr(core, f"resolve_{ask['type']}_value")(ask["key"], DEFAULTS[ask["type"]], context)
    except OpenFeatureError as error:
        return {"error": error.error_code.value, "calls": recorder.calls}
    except Exception as error:  # noqa: BLE001 -- a crash of the core is an answer here
        return {"error": f"CRASH {type(error).__name__}", "calls": recorder.calls}
    return {
        "value": found.value, "variant": found.variant, "reason": found.reason,
        "metadata": found.flag_metadata, "calls": recorder.calls,
    }  # fmt: skip


def main() -> None:
    logging.disable(logging.CRITICAL)
    pipe, sys.stdout = sys.stdout, io.StringIO()  # the engine has an operator that prints
    recorder = Recorder(ENGINE.apply)
    ENGINE.apply = recorder.evaluate
    TARGETING.jsonLogic = recorder.start
    for line in sys.stdin:
        request = json.loads(line)
        now = request["now"]
        TARGETING.time = SimpleNamespace(time=lambda now=now: now)
        core = FlagdCore()
        core.set_flags(request["definitions"])
        answers = [answer(core, recorder, ask) for ask in request["asks"]]
        pipe.write(json.dumps({"answers": answers}) + "\n")
        pipe.flush()


if __name__ == "__main__":
    main()
