"""A run from beginning to end: conversations, features, training, export. Each stage goes on where it stopped.

    <folder>/run.json               what was asked for
    <folder>/conversations.jsonl    stage 1
    <folder>/features/              stage 2
    <folder>/prepared.npz           draft vocabulary, whitening, linear start
    <folder>/training/              stage 3: state, best, log
    <folder>/drafter/               stage 4: the files to give to --drafter

Knows no screen: a `Watcher` is told what happens.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import mlx.core as mx
import numpy as np

from engine.drafters.load import load_drafter
from engine.engine import Engine
from engine.errors import UsageError, human_bytes
from engine.paths import replacing, write_atomically
from engine.targets.base import Target
from engine.training.data import blocks, features
from engine.training.data import conversations as talk
from engine.training.data.blocks import Floats, Ints, Store
from engine.training.data.conversations import Conversation
from engine.training.estimate import Estimate, estimate
from engine.training.export import export
from engine.training.export.card import card
from engine.training.loop import accepted_length, step, train
from engine.training.model import graft, model, warmstart
from engine.training.settings import Settings, default_taps

TOP_K = 32
"""Target probabilities kept per token: at temperature 0.6 they hold all but a trace of the mass."""


class Watcher(Protocol):
    """Told about progress; every method may do nothing."""

    def stage(self, name: str, detail: str) -> None: ...
    def progress(self, done: int, total: int) -> None: ...
    def report(self, report: train.Report) -> None: ...


class Prepared(NamedTuple):
    """What is computed once between features and training."""

    vocabulary: Ints
    maps: Floats
    mask_id: int
    start: warmstart.Start


class Run:
    """One folder and one loaded model."""

    def __init__(self, folder: Path, settings: Settings, engine: Engine, watcher: Watcher) -> None:
        self.folder, self.settings, self.engine, self.watcher = folder, settings, engine, watcher
        self.measured: tuple[accepted_length.Measured, accepted_length.Measured] | None = None
        """(plain, with the exported drafter), once there is one."""
        spec = engine.spec
        self.taps = settings.taps or default_taps(spec.num_layers)
        if self.taps[-1] >= spec.num_layers:
            raise UsageError(f"{spec.name} has layers 0 to {spec.num_layers - 1}; --taps must stay among them.")

    def all(self) -> Path:
        """Every stage; returns the folder of the finished drafter."""
        found = self.conversations()
        self.features(found)
        trainer = self.train()
        return self.export(trainer)

    def estimate(self) -> Estimate:
        """What is still to do."""
        own, features_folder = self.folder / "conversations.jsonl", self.folder / "features"
        source = own if own.exists() else Path(self.settings.data).expanduser() if self.settings.data else None
        found = talk.read(source, self.settings.conversations or None) if source else []
        mark, state = features_folder / "done", self.folder / "training" / "state.safetensors"
        read = int(mark.read_text()) if mark.exists() else 0
        trained = float(train.read(state)[1]["used"]) if state.exists() else 0.0
        tokens = sum(len(c.prompt_ids) + len(c.response_ids) for c in found)
        return self.engine.run_exclusive(
            lambda: estimate(
                self.engine.target,
                self.settings,
                len(self.taps),
                written=len(found),
                tokens=tokens,
                read=read,
                trained=trained,
            )
        )

    # 1 ----------------------------------------------------------------------------------------------------------------

    def conversations(self) -> list[Conversation]:
        """Those given, topped up with the model's own up to the wanted number."""
        settings, own = self.settings, self.folder / "conversations.jsonl"
        if settings.data and not own.exists():
            given = talk.read(Path(settings.data).expanduser(), settings.conversations or None)
            write_atomically(own, "".join(c.line() + "\n" for c in given))
        have = len(talk.read(own)) if own.exists() else 0
        if have < settings.conversations:
            self.watcher.stage("conversations", f"{have} of {settings.conversations} written")
            questions = talk.prompts(Path(settings.prompts).expanduser()) if settings.prompts else ()
            talk.write(
                self.engine,
                own,
                settings.conversations,
                questions=questions,
                max_tokens=settings.max_tokens,
                seed=settings.seed,
                progress=self.watcher.progress,
            )
        found = talk.read(own, settings.conversations or None)
        order = np.random.default_rng(settings.seed).permutation(len(found))
        return [found[i] for i in order]

    # 2 ----------------------------------------------------------------------------------------------------------------

    def features(self, found: list[Conversation]) -> None:
        size = features.estimate(found, self.engine.spec.hidden_size, len(self.taps))
        self.watcher.stage("features", f"{size.tokens} tokens, {human_bytes(size.bytes)}")
        folder = self.folder / "features"
        self.engine.run_exclusive(
            lambda: features.extract(self.engine.target, found, self.taps, folder, progress=self.watcher.progress)
        )

    # 3 ----------------------------------------------------------------------------------------------------------------

    def train(self) -> train.Trainer:
        """The training stage, on the model thread."""
        return self.engine.run_exclusive(self._train)

    def trainer(self) -> train.Trainer:
        """Everything the training needs, prepared or read back; call on the model thread."""
        settings, target = self.settings, self.engine.target
        store = Store.open(self.folder / "features")
        held, members = split(store, settings.held_out)
        if settings.learn_questions or settings.self_asked:
            opening = talk.opening(self.engine.format, self.engine.tokenizer.backend)
            store = blocks.with_questions(store, members, len(opening))
        prepared = self._prepared(store, members)
        shape = settings.shape(target.spec, self.taps, len(prepared.vocabulary), prepared.mask_id)
        frozen = freeze(target, prepared.vocabulary, prepared.maps)
        judge = judge_of(target, frozen, prepared.vocabulary)
        k = min(TOP_K, len(prepared.vocabulary))
        teacher = blocks.teach(store, judge, prepared.vocabulary, shape.vocab, k, settings.temperature)
        made = train.Trainer(
            self.folder / "training", shape, self._plan(), frozen, store, teacher, prepared.vocabulary, members, held
        )
        made.begin(self._begin(made, prepared))
        made.judge = self._judge(made, prompts=self._held_prompts(store, held))
        return made

    def _judge(self, made: train.Trainer, prompts: list[list[int]]) -> Callable[[model.Params], float]:
        """Tokens a round by the real loop, of parameters in the middle of training."""
        target, tokenizer, folder = self.engine.target, self.engine.tokenizer, self.folder / "training" / "trial"

        def judge(params: model.Params) -> float:
            export.write(folder, made.shape, params, made.frozen, made.vocabulary, self._origin())
            found = accepted_length.decode(target, tokenizer, prompts, load_drafter(folder, target), max_tokens=48)
            shutil.rmtree(folder)
            return found.committed

        return judge

    def _origin(self) -> export.Origin:
        spec = self.engine.spec
        architecture = (self.engine.config.get("architectures") or [""])[0]
        return export.Origin(spec.name, spec.num_layers, architecture, spec.context)

    def _train(self) -> train.Trainer:
        self.watcher.stage("training", f"{self.settings.kind}, {self.settings.layers} layer(s)")
        made = self.trainer()
        made.train(self.watcher.report)
        return made

    def _plan(self) -> train.Plan:
        s, hidden = self.settings, self.engine.spec.hidden_size
        sequences, anchors = s.batch(hidden)
        return train.Plan(
            steps=s.steps,
            seconds=s.budget,
            sequences=sequences,
            anchors=anchors,
            rate=s.peak_rate(hidden),
            seed=s.seed,
            weights=s.weights(),
            weight_decay=s.weight_decay,
            noise=s.noise,
            save_every=s.save_every,
            evaluate_every=s.evaluate_every,
        )

    def _begin(self, made: train.Trainer, prepared: Prepared) -> model.Params:
        """First parameters: an earlier run's, or the linear start. A DFlash grows out of a DSpark either way."""
        shape, s = made.shape, self.settings
        if s.parent:
            tree, facts = train.read(Path(s.parent).expanduser() / "training" / "best.safetensors")
            params, old = tree["params"], model.Shape.of(facts["shape"])
        else:
            old = shape if s.kind == "dspark" else graft.spark_shape(shape)
            params = model.init(old, prepared.start, mx.random.key(s.seed))
        chosen = blocks.choose(made.store, made.members, 4, s.seed, 0)
        probe = blocks.blocks(made.store, made.teacher, chosen, 32, old.drafts, seed=s.seed, step=0)
        return graft.adopt(params, old, shape, step.to_block(old, made.frozen, probe))

    def _prepared(self, store: Store, members: Ints) -> Prepared:
        file = self.folder / "prepared.npz"
        parent = Path(self.settings.parent).expanduser() / "prepared.npz" if self.settings.parent else None
        if not file.exists() and parent is not None:
            shutil.copyfile(parent, file)
        if not file.exists():
            save_prepared(file, self._prepare(store, members))
        return load_prepared(file)

    def _prepare(self, store: Store, members: Ints) -> Prepared:
        target, s = self.engine.target, self.settings
        spec = target.spec
        size = min(s.draft_vocab or spec.vocab_size, spec.vocab_size)
        if size == spec.vocab_size:
            vocabulary = np.arange(size)
        else:
            vocabulary = blocks.draft_vocabulary(store, size, tuple(sorted(spec.stop_ids)))
        maps = blocks.whitening(store, members, spec.hidden_size)
        embed = table(target)
        mask_id = unused_token(store, spec.vocab_size, spec.stop_ids)
        return Prepared(vocabulary, maps, mask_id, warmstart.start(store, members, maps, embed, mask_id))

    def _held_prompts(self, store: Store, held: Ints, count: int = 4) -> list[list[int]]:
        return [store.ids[store.span(int(i))][: int(store.prompts[i])].tolist() for i in held[:count]]

    # 4 ----------------------------------------------------------------------------------------------------------------

    def export(self, trainer: train.Trainer) -> Path:
        """Write the best parameters as a drafter, measure it with the real loop, and write its card."""
        self.watcher.stage("export", "")
        return self.engine.run_exclusive(lambda: self._export(trainer))

    def _export(self, trainer: train.Trainer) -> Path:
        folder, origin = self.folder / "drafter", self._origin()
        tree, facts = train.read(trainer.folder / "best.safetensors")
        parts = (trainer.shape, tree["params"], trainer.frozen, trainer.vocabulary, origin)
        size = export.write(folder, *parts, bits=self.settings.bits)
        prompts = self._held_prompts(trainer.store, trainer.held_out, 12)
        self.measured = accepted_length.measure(self.engine.target, self.engine.tokenizer, folder, prompts)
        text = card(self.settings, origin, facts, trainer.plan, self.measured, size)
        write_atomically(folder / "README.md", text, mode=0o666)
        return folder


def split(store: Store, wanted: int) -> tuple[Ints, Ints]:
    """(held out, members). Held-out conversations are greedily answered ones, at most a tenth of all."""
    greedy = np.flatnonzero(store.temperatures == 0.0)
    held = greedy[: max(1, min(wanted, len(store) // 10))]
    return held, np.setdiff1d(np.arange(len(store)), held)


def table(target: Target) -> Floats:
    """The embedding table [V, H] in float32."""
    rows = target.raw_embed(mx.arange(target.spec.vocab_size)).astype(mx.float32)
    return np.array(rows)


def freeze(target: Target, vocabulary: Ints, maps: Floats) -> step.Frozen:
    """Embedding and head of the target, as the drafter borrows them."""
    eye = mx.eye(target.spec.hidden_size)[None]
    head = target.raw_logits(eye)[0].astype(mx.float32).T[mx.array(vocabulary)]
    frozen = step.Frozen(mx.array(table(target)), mx.contiguous(head), mx.array(maps))
    mx.eval(frozen.embed, frozen.head, frozen.whiten)
    return frozen


def judge_of(target: Target, frozen: step.Frozen, vocabulary: Ints) -> Callable[[Floats], Floats]:
    """Logits over the draft vocabulary. Where the family transforms its logits, the whole head is run."""
    head, columns = np.array(frozen.head), mx.array(vocabulary)
    probe = mx.random.normal((1, 2, frozen.head.shape[1]), key=mx.random.key(0))
    if mx.allclose(target.logits(probe), target.raw_logits(probe)).item():
        return lambda rows: rows @ head.T

    def whole(rows: Floats) -> Floats:
        return np.array(target.logits(mx.array(rows)[None])[0].astype(mx.float32)[:, columns])

    return whole


def unused_token(store: Store, vocab: int, stops: frozenset[int]) -> int:
    """A token that never occurs, to stand for "not drafted yet"; the lowest, where reserved ids usually are."""
    used = np.zeros(vocab, bool)
    used[np.unique(store.ids)] = True
    used[[i for i in stops if i < vocab]] = True
    free = np.flatnonzero(~used)
    return int(free[0]) if len(free) else 0


def save_prepared(file: Path, prepared: Prepared) -> None:
    fields: dict[str, Any] = {f"start_{k}": v for k, v in prepared.start._asdict().items()}
    with replacing(file) as part, part.open("wb") as stream:
        np.savez(stream, vocabulary=prepared.vocabulary, maps=prepared.maps, mask_id=prepared.mask_id, **fields)


def load_prepared(file: Path) -> Prepared:
    with np.load(file) as stored:
        z = dict(stored)
    context, token, side, one = (z[f"start_{name}"] for name in warmstart.Start._fields[:4])
    start = warmstart.Start(context, token, side, one, float(z["start_scale"]), float(z["start_explained"]))
    return Prepared(z["vocabulary"], z["maps"], int(z["mask_id"]), start)
