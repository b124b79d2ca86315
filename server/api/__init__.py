"""One file a dialect: `parse(body) -> Chat`, `answer(...) -> dict` and a `Stream` of frames. Pure functions, no I/O."""
