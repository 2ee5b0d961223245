"""Streams of flag sets: what a selector means, what is encoded of each object, and who is sent it."""
