"""The layers that learned drafters are made of."""
