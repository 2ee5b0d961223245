"""Forms for Git servers: statuses of commits, comments on pull requests, and how repositories are reached."""
