"""Text that users write: expressions, patterns, Secrets, and text that is shown to others."""
