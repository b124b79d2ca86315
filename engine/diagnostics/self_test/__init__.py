"""Whether the engine computes what it should on the backend at hand: tiny random models, no download, a minute."""
