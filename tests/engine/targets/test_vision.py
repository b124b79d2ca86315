"""Pictures in a conversation: the tokens are mlx-vlm's own, plain and speculative; keys, turns and places are right."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from fakes import Run, ScriptedDrafter
from PIL import Image

from engine.chat.images import Picture, Prompt, read_picture
from engine.chat.template import ChatFormat
from engine.diagnostics.self_test.tiny_configs import token_id
from engine.drafters.backfill import backfill
from engine.drafters.chain import Chain
from engine.drafters.load import load_drafter
from engine.drafters.prompt_lookup import Lookup, LookupSettings
from engine.engine import Options
from engine.errors import ImageUnsupported
from engine.load import open_engine
from engine.prefix_cache.cache import PrefixCache
from engine.targets.families import muse_vision
from engine.targets.families.muse_vision import MuseEye
from engine.targets.load import Loaded, load_target
from engine.types import Finished, Prefilled, Request
from tests.tools.make_tiny_drafters import make_drafter

mlx_vlm: Any = pytest.importorskip("mlx_vlm", reason="needs the vision extra (mlx-vlm)")
pytestmark = pytest.mark.filterwarnings("ignore")

TOKENS = 16
PATCH = token_id("<|patch|>")


def picture(seed: int, width: int = 24, height: int = 16, name: str = "a.png") -> Picture:
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return read_picture(out.getvalue(), name)


@pytest.fixture(scope="module")
def folder(tiny_folder: Callable[..., Path]) -> Path:
    return tiny_folder("muse_glimmer", vision=True)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Loaded:
    return load_target(folder)


@pytest.fixture(scope="module")
def eye(loaded: Loaded) -> MuseEye:
    assert isinstance(loaded.target.eye, MuseEye)  # type: ignore[attr-defined]
    return loaded.target.eye  # type: ignore[attr-defined]


def asked(loaded: Loaded, messages: list[dict[str, Any]]) -> list[int]:
    return ChatFormat(loaded.tokenizer.backend).render(messages)


def turn(*parts: str | Picture) -> dict[str, Any]:
    """A user's turn; pictures stand where they stand."""
    shown = [{"type": "text", "text": p} if isinstance(p, str) else {"type": "image"} for p in parts]
    return {"role": "user", "content": shown}


def answered(loaded: Loaded, seen: Prompt, chain: Chain | None = None, **more: Any) -> Run:
    return Run(
        loaded.target,
        seen.ids,
        chain,
        max_tokens=TOKENS,
        embeddings=seen.embeddings,
        media=seen.media,
        stop_ids=frozenset(),
        **more,
    )


@pytest.fixture(scope="module")
def one(loaded: Loaded, eye: MuseEye) -> Prompt:
    shown = picture(1)
    return eye.prompt(asked(loaded, [turn(shown, "What is it?")]), [shown])


@pytest.fixture(scope="module")
def theirs(folder: Path, loaded: Loaded) -> list[int]:
    """mlx-vlm's own processor, model and generation."""
    model, processor = mlx_vlm.load(str(folder))
    text = loaded.tokenizer.decode(asked(loaded, [turn(picture(1), "What is it?")]))
    shown = [picture(1).image]
    found = mlx_vlm.stream_generate(model, processor, text, image=shown, max_tokens=TOKENS, temperature=0.0)
    return [r.token for r in found][:TOKENS]


def test_the_tokens_are_those_of_mlx_vlm(loaded: Loaded, one: Prompt, theirs: list[int]) -> None:
    assert answered(loaded, one).output == theirs


@pytest.mark.parametrize("chunk", [1, 7])
def test_read_in_parts(loaded: Loaded, one: Prompt, theirs: list[int], chunk: int) -> None:
    assert answered(loaded, one, chunk=chunk).output == theirs


@pytest.mark.parametrize("kind", ["scripted", "lookup", "dspark", "dflash"])
@pytest.mark.parametrize("cap", [1, 4, 7])
def test_speculation_on_the_reply(
    loaded: Loaded, one: Prompt, theirs: list[int], tmp_path: Path, kind: str, cap: int
) -> None:
    spec = loaded.target.spec
    part: Any
    if kind == "scripted":

        def script(ids: list[int], k: int) -> list[int]:
            at = len(ids) - len(one.ids)
            return [(t + (at + i) % 4 // 3) % 288 for i, t in enumerate(theirs[at : at + k])]

        part = ScriptedDrafter(script)
    elif kind == "lookup":
        part = Lookup(LookupSettings(min_n=1))
    else:
        sizes = {"hidden": spec.hidden_size, "layers": spec.num_layers, "vocab": spec.vocab_size}
        part = load_drafter(make_drafter(kind, tmp_path, **sizes, mask_id=token_id("<|mask|>")), loaded.target)
    run = answered(loaded, one, Chain(kind, (part,)), cap=cap)
    assert run.output == theirs
    assert kind == "lookup" or run.sequence.usage.drafted


def test_a_picture_changes_answer_and_key(loaded: Loaded, eye: MuseEye, one: Prompt) -> None:
    other = picture(2)
    seen = eye.prompt(asked(loaded, [turn(other, "What is it?")]), [other])
    assert seen.ids == one.ids
    assert seen.media != one.media
    cache = PrefixCache(64 * 2**20)
    first = answered(loaded, one, cache=cache)
    second = answered(loaded, seen, cache=cache)
    assert second.output == answered(loaded, seen).output != first.output
    again = answered(loaded, one, cache=cache)
    assert again.output == first.output


def test_two_turns_with_two_pictures_equal_a_cold_run(loaded: Loaded, eye: MuseEye) -> None:
    shown = [picture(1), picture(2, 16, 16)]
    cache = PrefixCache(64 * 2**20)
    messages = [turn(shown[0], "What is it?")]
    first = eye.prompt(asked(loaded, messages), shown[:1])
    reply = answered(loaded, first, cache=cache)
    messages += [{"role": "assistant", "content": reply.text}, turn("and ", shown[1], "?")]
    second = eye.prompt(asked(loaded, messages), shown)
    cold = eye.prompt(asked(loaded, messages), shown)
    assert second.ids == cold.ids
    assert second.ids.count(PATCH) == sum(eye.tokens(p) - 2 for p in shown)
    assert answered(loaded, second, cache=cache).output == answered(loaded, cold).output
    third = [*messages, {"role": "assistant", "content": "a"}, turn("go on")]
    warm = answered(loaded, eye.prompt(asked(loaded, third), shown), cache=cache)
    assert warm.output == answered(loaded, eye.prompt(asked(loaded, third), shown)).output


def test_a_new_picture_reads_only_itself_again(folder: Path) -> None:
    """Turn 2 with a second picture starts where that stands; another one in its place is not taken for it."""
    first, second, third = picture(1), picture(2, 16, 16), picture(3, 16, 16)
    with open_engine(folder, options=Options(cache=PrefixCache(64 * 2**20))) as engine:

        def ask(messages: list[dict[str, Any]], shown: list[Picture], remember: bool = True) -> tuple[Prompt, Any, Any]:
            ready = engine.format.prompt(messages)
            seen = engine.see(ready.ids, shown)
            request = Request(
                seen.ids,
                max_tokens=TOKENS,
                embeddings=seen.embeddings,
                media=seen.media,
                boundaries=seen.moved(ready.boundaries),
                stop_ids=frozenset(),
                remember=remember,
            )
            events = list(engine.submit(request))
            assert isinstance(events[-1], Finished), events[-1]
            return seen, next(e for e in events if isinstance(e, Prefilled)), events[-1]

        messages = [turn(first, "What is it? " * 6)]
        reply = ask(messages, [first])[2]
        messages = [*messages, {"role": "assistant", "content": reply.text}, turn("and ", second, "?")]
        for known, shown in ((False, [first, second]), (False, [first, third]), (True, [first, second])):
            cold = ask(messages, shown, remember=False)[2]
            seen, warm, answer = ask(messages, shown)
            assert answer.tokens == cold.tokens
            before = seen.media[0].start + seen.media[0].rows
            assert before < warm.cached
            assert known == (warm.cached > seen.media[1].start)
        other = [third, second]
        seen, warm, answer = ask(messages, other)
        assert warm.cached <= seen.media[0].start
        assert answer.tokens == ask(messages, other, remember=False)[2].tokens


@pytest.mark.parametrize("kind", ["dspark", "dflash"])
def test_a_drafter_that_joins_late_has_seen_the_picture(loaded: Loaded, one: Prompt, tmp_path: Path, kind: str) -> None:
    """What it missed is read again as it was read: with the picture's rows, not with the words that stand for them."""
    spec = loaded.target.spec
    sizes = {"hidden": spec.hidden_size, "layers": spec.num_layers, "vocab": spec.vocab_size}
    part: Any = load_drafter(make_drafter(kind, tmp_path, **sizes, mask_id=token_id("<|mask|>")), loaded.target)
    run = answered(loaded, one, Chain(kind, (part,)), cap=0)
    tokens = run.sequence.tokens[:-1]
    always, late = run.sequence.context(part), part.new_context()
    backfill(loaded.target, part, late, tokens, run.state.snapshot(), embeddings=one.embeddings)
    for a, b in zip(always.arrays(), late.arrays(), strict=True):
        n = min(a.shape[2], b.shape[2])
        assert mx.allclose(a[:, :, :n], b[:, :, :n], atol=1e-4)


A, B, C = picture(1), picture(2, 16, 16), picture(3, 40, 8)
SHAPES: list[tuple[list[dict[str, Any]], list[Picture]]] = [
    ([turn(A)], [A]),
    ([turn(A, "x")], [A]),
    ([turn("x", A)], [A]),
    ([turn("x", A, "y", B, "z")], [A, B]),
    ([turn(A, B, "x")], [A, B]),
    ([turn(A, A)], [A, A]),
    ([turn(A, "x"), {"role": "assistant", "content": "r"}, turn(B, "y")], [A, B]),
    ([turn("x"), {"role": "assistant", "content": "r"}, turn("y", B)], [B]),
    ([turn(A, "x"), {"role": "assistant", "content": "r"}, turn("y")], [A]),
    ([{"role": "system", "content": "s"}, turn("x", A, "y", B, C), {"role": "assistant", "content": "r"}, turn("z", C)],
     [A, B, C, C]),
]  # fmt: skip


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_each_picture_stands_where_it_stood(loaded: Loaded, eye: MuseEye, shape: int) -> None:
    """Several pictures, several turns, text between: placeholders keep place and number (O60)."""
    messages, pictures = SHAPES[shape]
    bare = asked(loaded, messages)
    seen = eye.prompt(bare, pictures)
    start, end = token_id("<|image_start|>"), token_id("<|image_end|>")
    expected: list[int] = []
    left = iter(pictures)
    for token in bare:
        shown = [start, *[PATCH] * (eye.tokens(next(left)) - 2), end] if token == PATCH else [token]
        expected += shown
    assert seen.ids == expected
    assert seen.embeddings is not None
    assert seen.embeddings.shape[1] == len(expected)
    assert [m.key for m in seen.media] == [p.key for p in pictures]
    for media in seen.media:
        assert seen.ids[media.start : media.start + media.rows] == [start, *[PATCH] * (media.rows - 2), end]
    marks = (bare.index(PATCH), bare.index(PATCH) + 1, len(bare))
    assert seen.moved(marks) == (marks[0], marks[0] + eye.tokens(pictures[0]), len(expected))


def test_a_spelt_placeholder_is_text(loaded: Loaded, eye: MuseEye) -> None:
    """A person who writes the name of the control token beside a picture does not ask for a second picture."""
    assert asked(loaded, [turn(A, "what does <|patch|> mean?")]).count(PATCH) == 1
    assert asked(loaded, [{"role": "user", "content": "what does <|patch|> mean?"}]).count(PATCH) == 0


@pytest.mark.parametrize(("places", "pictures"), [(2, [A]), (0, [A]), (1, [A, B]), (1, [])])
def test_places_and_pictures_must_match(eye: MuseEye, places: int, pictures: list[Picture]) -> None:
    with pytest.raises(ImageUnsupported, match=f"{places} places for pictures and {len(pictures)}"):
        eye.prompt([5, *[PATCH] * places], pictures)


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (200, 3), (16, 24), (17, 23), (640, 480), (31, 1000), (999, 998)])
def test_what_a_picture_will_cost_is_exact(
    eye: MuseEye, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told before it is sent, from any thread, without looking at it."""
    shown = picture(5, *size)
    told: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(eye, "_see", lambda *_: pytest.fail("it was looked at"))
        thread = threading.Thread(target=lambda: told.append(eye.tokens(shown)))
        thread.start()
        thread.join()
    assert told == [eye.prompt([PATCH], [shown]).media[0].rows]


def test_no_pictures_is_an_ordinary_prompt(eye: MuseEye) -> None:
    assert eye.prompt([5, 6], []) == Prompt([5, 6], None, ())


def test_a_picture_is_looked_at_once(eye: MuseEye, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also under another name; other content under the same name is looked at again."""
    looks: list[int] = []
    see = eye._see
    monkeypatch.setattr(eye, "_see", lambda *a: looks.append(1) or see(*a))
    fresh = picture(77)
    eye.prompt([PATCH], [fresh])
    eye.prompt([PATCH], [picture(77, name="b.png")])
    assert len(looks) == 1
    eye.prompt([PATCH], [picture(78)])
    assert len(looks) == 2


def test_kept_features_are_bounded(eye: MuseEye, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muse_vision, "KEEP_BYTES", 4096)
    for seed in range(200, 206):
        eye.prompt([PATCH], [picture(seed)])
    assert sum(f.nbytes for f in eye._features.values()) <= 4096


def test_text_only_conversions_have_no_eye(tiny_folder: Callable[..., Path]) -> None:
    """They keep the vision tower's config, but not its weights."""
    target = load_target(tiny_folder("muse_glimmer")).target
    assert target.spec.vision is False
    assert target.eye is None  # type: ignore[attr-defined]


def test_without_mlx_vlm_the_way_out_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named '{name}'")

    target = load_target(folder).target
    assert target.spec.vision is True
    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ImageUnsupported, match=r"dspark-chat\[vision\]"):
        target.eye.prompt([PATCH], [A])  # type: ignore[attr-defined]
