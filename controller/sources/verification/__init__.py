"""Who signed something, and whether they are trusted; blind to where it came from."""
