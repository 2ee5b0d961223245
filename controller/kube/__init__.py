"""Access to the API server: the official package's asynchronous client, watches, and the leader's Lease."""
