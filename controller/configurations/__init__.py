"""Stage 4: FeatureFlagConfiguration and FeatureFlag, whoever wrote them: are they valid, and who serves
them.
"""
