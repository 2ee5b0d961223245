"""How that gets into a pod, for the webhook and for manifests."""
