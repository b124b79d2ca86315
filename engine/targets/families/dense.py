"""Any decoder of mlx-lm whose memory is keys and values: llama, qwen2, qwen3, mistral, phi3, smollm3 and their like.

`MlxTarget` is the adapter that the other families refine: where the inner body, the layers, the embedding and the head
are, which state each cache entry becomes, and what the logits go through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from engine.backend.kernels import OpDispatch
from engine.chat.images import Eye
from engine.errors import UnsupportedModel
from engine.kv_cache.base import LayerState, State
from engine.kv_cache.full import AppendKV
from engine.kv_cache.quantized import QuantKV
from engine.kv_cache.sliding_window import WindowKV
from engine.targets.base import Body, TargetSpec
from engine.targets.hidden_states import LayerTaps


class MlxTarget:
    """Adapter over an mlx-lm model; implements `engine.targets.base.Target`.

    The defaults fit models of the shape `model.model.{embed_tokens, layers, norm}` with an `lm_head` or a tied
    embedding.
    """

    kv_bits: int = 0
    """Bits of the keys and values of full attention; 0 keeps them as they are computed."""
    ops: OpDispatch | None = None
    """Which implementations serve it, for the calibration's key."""
    eye: Eye | None = None
    """How this model sees pictures; None for a model that reads text only."""

    def __init__(self, model: nn.Module, spec: TargetSpec) -> None:
        self.model: Any = model
        self.spec = spec
        self._taps = LayerTaps(self.layers())
        self.new_state()  # an unknown kind of cache is refused at load, not in the first answer

    # Where things are -------------------------------------------------------------------------------------------------

    def text_model(self) -> Any:
        """The module that holds the body and the head."""
        return self.model

    def inner(self) -> Any:
        """The body: ids to hidden states after the final norm."""
        return self.text_model().model

    def layers(self) -> Sequence[nn.Module]:
        return self.inner().layers

    def embedding(self) -> Any:
        return self.inner().embed_tokens

    def head(self) -> Any:
        """The output matrix, or None when it is the embedding's."""
        return getattr(self.text_model(), "lm_head", None)

    def run(self, ids: mx.array, caches: list[Any], embeddings: mx.array | None) -> mx.array:
        """One forward of the inner body; returns hidden states after the final norm."""
        if embeddings is not None:
            return self.inner()(ids, cache=caches, input_embeddings=embeddings)
        return self.inner()(ids, cache=caches)

    def layer_state(self, cache: Any) -> LayerState:
        """Our state for one entry of the library's own cache list.

        Raises:
            UnsupportedModel: for a kind of cache that this family does not roll back exactly.
        """
        name = type(cache).__name__
        if name in ("KVCache", "ConcatenateKVCache"):
            return QuantKV(self.kv_bits) if self.kv_bits else AppendKV()
        if name == "RotatingKVCache" and not cache.keep:
            return WindowKV(cache.max_size)
        raise UnsupportedModel(
            f"The {self.spec.model_type} model keeps a {name}, which cannot be rolled back exactly here, so it is not "
            "run: choose a model of a family in docs/families.md."
        )

    def quantize_state(self, bits: int) -> None:
        """Keep keys and values of full attention in `bits` bits from now on; windows and recurrent states stay.

        Raises:
            UsageError: where they cannot be.
        """
        self.kv_bits = bits
        self.spec = replace(self.spec, fingerprint=f"{self.spec.fingerprint}-kv{bits}")
        state = self.new_state()
        with state.begin(1):
            self.body(mx.zeros((1, 1), dtype=mx.int32), state)  # a graph only: shapes tell whether the groups fit

    # What the engine calls --------------------------------------------------------------------------------------------

    def new_state(self) -> State:
        from mlx_lm.models.cache import make_prompt_cache

        return State([self.layer_state(cache) for cache in make_prompt_cache(self.model)])

    def body(
        self,
        ids: mx.array,
        state: State,
        taps: Sequence[int] = (),
        embeddings: mx.array | None = None,
    ) -> Body:
        self._taps.arm(taps)
        hidden = self.run(ids, list(state.layers), embeddings)
        if not taps:
            self._taps.arm(())
            return Body(hidden, None)
        embedded = None
        if -1 in taps:
            embedded = self.embed(ids) if embeddings is None else embeddings
        return Body(hidden, self._taps.collect(taps, embedded))

    def embed(self, ids: mx.array) -> mx.array:
        """What enters the first layer: the rows of the table, scaled or normed where the family does."""
        return self.raw_embed(ids)

    def logits(self, hidden: mx.array) -> mx.array:
        return self.raw_logits(hidden)

    def raw_logits(self, hidden: mx.array) -> mx.array:
        head = self.head()
        return self.embedding().as_linear(hidden) if head is None else head(hidden)

    def raw_embed(self, ids: mx.array) -> mx.array:
        return self.embedding()(ids)


class DenseTarget(MlxTarget):
    """The generic family: any model of keys and values, with whatever its own code does to its logits.

    Multipliers, soft caps and scales stand in the library's forward after the body. So the forward runs with a body
    *instance* that hands back given hidden states, and nothing of it has to be known here.
    """

    def __init__(self, model: nn.Module, spec: TargetSpec) -> None:
        super().__init__(model, spec)
        self._given: mx.array | None = None
        inner = self.inner()
        base = type(inner)

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            return base.__call__(module, *args, **kwargs) if self._given is None else self._given

        inner.__class__ = type(f"Given{base.__name__}", (base,), {"__call__": call})

    def text_model(self) -> Any:
        """Checkpoints with a vision tower wrap their text model."""
        return getattr(self.model, "language_model", self.model)

    def logits(self, hidden: mx.array) -> mx.array:
        self._given = hidden
        try:
            return self.text_model()(mx.zeros(hidden.shape[:2], dtype=mx.int32))
        finally:
            self._given = None


def adapt(model: nn.Module, spec: TargetSpec) -> MlxTarget:
    """Raises UnsupportedModel when body, layers and embedding are not where models of this kind have them."""
    try:
        return DenseTarget(model, spec)
    except AttributeError as error:
        raise UnsupportedModel(
            f"The {spec.model_type} model is built in a way that is not known here ({error}): choose a model of a "
            "family in docs/families.md."
        ) from error
