"""What all kinds share: metadata, conditions, the base of statuses, provenance, and how fields are read."""
