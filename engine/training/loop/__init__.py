"""Steps, optimiser and evaluation."""
