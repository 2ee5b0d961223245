"""Flags that a workload carries in an annotation, and the FeatureFlagConfigurations made of them."""
