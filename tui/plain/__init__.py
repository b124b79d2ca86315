"""The line-by-line mode."""
