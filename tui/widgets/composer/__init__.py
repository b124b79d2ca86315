"""The message being written: its text, what it could become, and what goes with it."""
