"""Which requests may wake a source: what a Git server's push webhook says, which sources it concerns, and the
port that takes it.
"""
