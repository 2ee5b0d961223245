"""The controller in a cluster: its reconcilers, ports and replicas."""
