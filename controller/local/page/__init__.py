"""What the page of `flagstaff up` shows."""
