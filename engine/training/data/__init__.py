"""What a drafter learns from."""
