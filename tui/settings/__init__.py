"""Settings, presets, preferences and the key map: what a person decides, and the files that keep it."""
