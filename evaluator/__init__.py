"""Flagstaff's serving side: evaluates flags, and delivers them to clients.

The data's way: Git → `sources` → `artifacts` → `flagsets` → FeatureFlagConfiguration (`api`) → `proxy` →
`evaluator.sync` → `evaluator.store` → `evaluator.resolving` → `evaluator.server` → SDK.
"""
