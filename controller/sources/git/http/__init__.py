"""Git over HTTP in this process: what needs neither git's program nor its libraries."""
