"""The watches by kopf, and the thread that runs them."""
