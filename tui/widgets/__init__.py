"""Widgets, one a file, each with its style beside it. A widget mounts alone and knows no engine."""
