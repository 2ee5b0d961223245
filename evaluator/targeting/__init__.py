"""JSONLogic with flagd's operators, compiled once per rule; pure."""

from __future__ import annotations

from evaluator.targeting.compile import CompiledRule, compile_rule
from evaluator.targeting.frame import STEPS, Context, Frame, Path, Trace
from evaluator.targeting.values import RuleError

__all__ = ["STEPS", "CompiledRule", "Context", "Frame", "Path", "RuleError", "Trace", "compile_rule"]
