"""Questions about a loaded engine that no answer depends on."""
