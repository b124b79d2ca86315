"""The terminal app and the plain line mode."""
