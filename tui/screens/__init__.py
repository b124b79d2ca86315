"""Screens over the conversation. Each is a file with its style, and returns what was chosen."""
