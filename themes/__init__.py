"""Themes as data files, and their loader."""
