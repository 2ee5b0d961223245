"""Git as a program: its environment, its credentials, and what its output means."""
