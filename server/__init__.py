"""HTTP front end of the engine."""
