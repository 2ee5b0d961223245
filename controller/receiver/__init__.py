"""Who may wake a source: what a Git server's push webhook says, whom it concerns, and the port
that takes it.
"""
