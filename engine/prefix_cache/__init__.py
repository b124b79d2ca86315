"""Prompts that were read once are not read again, in memory and on disk."""
