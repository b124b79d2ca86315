"""One package a dialect, each with its `DIALECT`; dialects.py is the table of those that are served."""
