"""Flagstaff's serving side: what a flag means, and who is told.

The data's way: Git → `sources` → `artifacts` → `flagsets` → FeatureFlagConfiguration (`api`) → `proxy` →
`evaluator.sync` → `evaluator.store` → `evaluator.resolve` → `evaluator.server` → SDK.
"""
