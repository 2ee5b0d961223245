"""Stage 4: whether FeatureFlagConfiguration and FeatureFlag objects are valid, and who serves them, whatever
their writer.
"""
