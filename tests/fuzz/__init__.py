"""Everything that parses bytes from outside, fuzzed: `make fuzz`. What was found once is in `corpus`, and a
test for good.
"""
