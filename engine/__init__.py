"""Everything about inference. Knows no screen and no socket.

Importing any part of it first lets `backend` load the BLAS that MLX must bind to; see its docstring.
"""

from engine import backend as backend

__version__ = "0.1.0"
