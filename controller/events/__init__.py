"""What leaves and what arrives: notifications about flags, and webhooks of Git servers."""
