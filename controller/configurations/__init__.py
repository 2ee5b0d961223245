"""Stage 4: whether FeatureFlagConfigurations and FeatureFlags are valid, and who serves them."""
