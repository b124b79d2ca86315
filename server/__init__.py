"""The HTTP front end: one starlette app, one internal request model, a table of dialects.

Knows nothing of models and samples nothing: everything that a client asks for becomes an engine request, and everything
it gets back is rendered from engine events.
"""
