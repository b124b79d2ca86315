"""What a target remembers of a sequence, and how a rejected draft is undone exactly."""
