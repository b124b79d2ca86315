"""The terminal and the desktop around the app."""
