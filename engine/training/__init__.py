"""Train a drafter for a model on this machine: conversations, features, training, export.

Nothing else in the engine imports this package.
"""
