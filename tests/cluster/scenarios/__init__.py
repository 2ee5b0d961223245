"""The manifests of test_operator_scenarios.py, and what is compared and started there.

A file has named parts, each a list of manifests as `kubectl apply` takes them, or as they are to be found
afterwards; `NAMESPACE` stands for the test's own.
"""
