"""What each namespace may have and reach."""
