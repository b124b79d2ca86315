"""One file a subcommand; registry.py lists them."""
