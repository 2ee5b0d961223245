"""Measurements, each beside a peer in the same run: `make bench`. Only ratios carry over to
another machine.
"""
