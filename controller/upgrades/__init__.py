"""Restarts of workloads whose pods have an older evaluator than they would get now."""
