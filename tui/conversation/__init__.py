"""A conversation without a screen: its turns, the request under way, where it is stored, the model that answers."""
