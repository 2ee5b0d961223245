"""The kinds of OpenFeature Operator, in every version."""
