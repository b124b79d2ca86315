"""Settings that every test relies on, made before MLX is imported anywhere."""

import os

os.environ.setdefault("MLX_DISABLE_COMPILE", "1")
os.environ.setdefault("DSPARK_BLAS", "stock")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from engine import backend  # noqa: F401  (must come before mlx)
