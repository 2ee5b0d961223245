"""Git's own programs and helper processes, each within its limits."""
