"""Access to the API server: the official package's client, watches by kopf, and the leader's Lease."""
