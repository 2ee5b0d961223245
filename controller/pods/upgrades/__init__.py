"""Restarts workloads whose pods have an older evaluator than injection would give them now."""
