"""Workloads for users: standalone evaluators (Flagd), flags in ConfigMaps, the proxy on demand."""
