"""Commits and files of a repository, by a mirror or in place."""
