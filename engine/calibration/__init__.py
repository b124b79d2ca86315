"""The measured machine: cost curves, what they predict, and where they are kept.

Only `measure` and `roofline` run a model; the other modules know neither a model nor MLX.
"""
