"""What is published of the kinds, written from their models: definitions and tables of fields."""
