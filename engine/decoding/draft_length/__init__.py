"""How long a draft to ask for."""
