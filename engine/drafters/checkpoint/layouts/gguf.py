"""Drafters as GGUF files: which program wrote one, and its config and tensors under DeepSpec's names."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx

from engine.drafters.checkpoint.config import DrafterConfig
from engine.drafters.checkpoint.layouts import llama_cpp, prism
from engine.drafters.checkpoint.layouts.packaging import described
from engine.errors import DrafterRefused
from engine.weight_files.gguf import Gguf

FORMS = {"dspark": prism, "dflash": llama_cpp}
"""`general.architecture` -> module with `rename` and `config_of`."""


def read(path: Path) -> tuple[DrafterConfig, dict[str, mx.array]]:
    """Raises DrafterRefused for a GGUF that is no drafter."""
    if not path.is_file():
        raise DrafterRefused(f"There is no file {path}; check the name, or give a repository.")
    file = Gguf(path)
    architecture = file.metadata.get("general.architecture")
    form = FORMS.get(str(architecture))
    if form is None:
        raise DrafterRefused(
            f"This GGUF holds the architecture {architecture!r}, not a drafter ({', '.join(FORMS)}); "
            "choose another one."
        )
    tensors = {form.rename(name): file.dense(name) for name in file.tensors}
    config = described(lambda: form.config_of(file.metadata, tensors))
    if config.draft_vocab_size is not None and architecture == "dflash":
        # llama.cpp keeps the ids themselves, everybody else what is to be added to the row's number.
        tensors["d2t"] = tensors["d2t"].astype(mx.int32) - mx.arange(config.draft_vocab_size)
    return config, tensors
