"""The migration from OpenFeature Operator to Flagstaff: the outcome of each field, and the steps of the
cut-over. Pure.
"""
