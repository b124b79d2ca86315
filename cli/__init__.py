"""The command line: arguments, one-shot answers and subcommands. Imports a front end or the engine when it needs it."""
