"""Verbs that read a cluster with the user's kubeconfig."""
