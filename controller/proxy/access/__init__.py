"""Authorises readers: bearer tokens, the cluster's reviews of them, and refusals."""
