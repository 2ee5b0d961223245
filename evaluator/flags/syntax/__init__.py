"""Parsers of JSON and YAML documents to values with their places."""
