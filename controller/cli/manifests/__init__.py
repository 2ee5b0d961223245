"""Manifests on disk: read with the place of each field, and judged as the API server judges them."""
