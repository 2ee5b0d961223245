"""The one way to the API server: the official package's asynchronous client, and the Lease that names the
leader.
"""
