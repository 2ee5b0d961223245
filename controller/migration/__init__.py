"""From OpenFeature Operator to Flagstaff: what becomes of each field, and the steps of the cut-over. Pure."""
