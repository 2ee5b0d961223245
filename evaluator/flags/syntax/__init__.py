"""Documents as text: JSON and YAML to values with their places."""
