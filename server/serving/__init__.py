"""How the server is configured, started, reached, watched and stopped."""
