"""The files of a source on their way into an artifact."""
