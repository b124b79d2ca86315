"""From a parsed request to engine events and back. Knows no dialect."""
