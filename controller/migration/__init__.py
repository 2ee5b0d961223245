"""The migration from OpenFeature Operator: the outcome of each field, and the steps of the cut-over. Pure."""
