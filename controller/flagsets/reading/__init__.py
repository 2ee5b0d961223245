"""Reads the source, files, ConfigMaps and Secrets that a FlagSet is built from."""
