"""What the views of deliveries and of pending work show, from objects as they are. Pure."""
