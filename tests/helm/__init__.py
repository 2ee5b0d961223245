"""Helm, for the tests of the chart."""
