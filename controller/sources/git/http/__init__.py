"""Git servers that are asked over HTTP by this process."""
