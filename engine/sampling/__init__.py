"""Logits to a token: transforms, processors, constraints. Knows no model and no drafter."""
