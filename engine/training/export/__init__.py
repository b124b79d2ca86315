"""What is written when training is done."""
