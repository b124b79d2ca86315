"""The wire: middleware and event streams. Knows no dialect."""
