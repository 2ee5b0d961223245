"""OpenFeature's published providers of other languages, unchanged, against `flagstaff up`: `make
test-clients`.
"""
