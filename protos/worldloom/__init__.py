"""Messages of our own."""
