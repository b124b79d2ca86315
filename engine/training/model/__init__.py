"""The drafter that is being trained, and its loss."""
