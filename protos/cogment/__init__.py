"""The Cogment 0.3 API."""
