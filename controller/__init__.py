"""Flagstaff's control side: from definitions in Git to a flag set that evaluators serve.

The data's way: Git → `sources` → `artifacts` → `flagsets` → FeatureFlagConfiguration (`api`) → `proxy` →
`evaluator.sync` → `evaluator.store` → `evaluator.resolving` → `evaluator.server` → SDK.
"""
