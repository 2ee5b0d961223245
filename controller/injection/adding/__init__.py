"""Adds the evaluator to a pod, for the webhook and for manifests."""
