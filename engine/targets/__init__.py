"""Loaded models that verify. Knows no drafter."""
