"""Stage 4: the status of FeatureFlagConfigurations and FeatureFlags, whoever wrote them: valid or not, served
by whom.
"""
