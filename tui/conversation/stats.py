"""Every number on the screen, derived from the engine's round records and from nothing else.

Pure. A turn and a conversation are the same tally over fewer or more rounds, so legend, ribbon and panels agree.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.types import Round, Source

ORDER = (Source.DRAFT, Source.LOOKUP, Source.TARGET)
EMA = 0.15
"""Weight of the newest drafting round in the moving acceptance."""
RIBBON = 400
"""Rounds kept for the ribbon and the sparklines; more than any screen is wide."""
SECONDS = 120


def percentages(counts: Sequence[int]) -> list[int]:
    """Whole percents that sum to 100 (largest remainder, earlier entries win ties); zeros when nothing was counted."""
    total = sum(counts)
    if total <= 0:
        return [0] * len(counts)
    floors = [count * 100 // total for count in counts]
    order = sorted(range(len(counts)), key=lambda i: (-(counts[i] * 100 % total), i))
    for i in order[: 100 - sum(floors)]:
        floors[i] += 1
    return floors


@dataclass(frozen=True, slots=True)
class Tick:
    """One round in the ribbon."""

    height: int
    """Committed tokens."""
    source: Source
    """What gave most of them."""
    switched: bool = False
    """The drafter changed before this round."""


@dataclass(slots=True)
class Position:
    """How drafts at one place of the block fared."""

    drafted: int = 0
    accepted: int = 0

    @property
    def rate(self) -> float:
        return self.accepted / self.drafted if self.drafted else 0.0


@dataclass(slots=True)
class Tally:
    """Sums over rounds. `add` is the only way in."""

    tokens: int = 0
    by_source: Counter[Source] = field(default_factory=Counter)
    rounds: int = 0
    """Decode rounds; the one that ends the prefill is not among them."""
    drafting: int = 0
    """Rounds that proposed something."""
    drafted: int = 0
    accepted: int = 0
    decoded: int = 0
    """Tokens committed by decode rounds."""
    decode_ms: float = 0.0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    plain_ms: deque[float] = field(default_factory=lambda: deque(maxlen=RIBBON))
    """Each of the last rounds that proposed nothing."""
    ema: float | None = None
    positions: dict[Source, list[Position]] = field(default_factory=lambda: defaultdict(list))
    ticks: deque[Tick] = field(default_factory=lambda: deque(maxlen=RIBBON))
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=RIBBON))
    """Acceptance of each drafting round."""
    seconds: deque[int] = field(default_factory=lambda: deque(maxlen=SECONDS))
    """Tokens committed in each second of decoding."""
    cap: int = 0
    drafter: str = ""
    _second: int = -1

    def add(self, round: Round) -> None:
        self._count(round)
        if round.index == 0:
            return
        self.rounds += 1
        self.decoded += len(round.tokens)
        self._clock(len(round.tokens), round.ms)
        self.draft_ms += round.draft_ms
        self.verify_ms += round.verify_ms
        if round.drafted:
            self._draft(round)
        elif round.width == 1 and round.rows == 1:
            self.plain_ms.append(round.ms)

    def _count(self, round: Round) -> None:
        self.tokens += len(round.tokens)
        self.by_source[round.source] += round.accepted
        self.by_source[Source.TARGET] += len(round.tokens) - round.accepted
        chain = round.chain or round.drafter
        switched = bool(self.drafter) and chain != self.drafter
        mostly = round.source if 2 * round.accepted >= len(round.tokens) and round.accepted else Source.TARGET
        self.ticks.append(Tick(len(round.tokens), mostly, switched))
        self.drafter, self.cap = chain, round.cap

    def _clock(self, tokens: int, ms: float) -> None:
        self.decode_ms += ms
        second = int(self.decode_ms // 1000)
        gap = min(second - self._second, SECONDS)
        self.seconds.extend([0] * gap)
        self._second = second
        self.seconds[-1] += tokens

    def _draft(self, round: Round) -> None:
        self.drafting += 1
        self.drafted += len(round.drafted)
        self.accepted += round.accepted
        rate = round.accepted / len(round.drafted)
        self.ema = _follow(self.ema, rate)
        self.rates.append(rate)
        places = self.positions[round.source]
        while len(places) < len(round.drafted):
            places.append(Position())
        for i in range(min(round.accepted + 1, len(round.drafted))):  # what follows a rejection was never judged
            places[i].drafted += 1
            places[i].accepted += i < round.accepted

    @property
    def acceptance(self) -> float | None:
        """Accepted ÷ drafted; None before anything was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def per_round(self) -> float | None:
        return self.decoded / self.rounds if self.rounds else None

    @property
    def rate(self) -> float | None:
        """Tokens a second while decoding, prefill excluded."""
        return self.decoded / self.decode_ms * 1000 if self.decode_ms > 0 else None

    @property
    def plain_rate(self) -> float | None:
        """That of rounds that proposed nothing, by their median: they are few, and one that waited for another program
        would make every drafter look good. None when there were too few to mean anything."""
        middle = statistics.median(self.plain_ms) if len(self.plain_ms) >= 8 else 0.0
        return 1000 / middle if middle > 0 else None

    @property
    def round_ms(self) -> float | None:
        return self.decode_ms / self.rounds if self.rounds else None

    @property
    def verify_mean(self) -> float | None:
        return self.verify_ms / self.rounds if self.rounds else None

    @property
    def legend(self) -> dict[Source, int]:
        """Percent of tokens from each source, summing to 100."""
        return dict(zip(ORDER, percentages([self.by_source[s] for s in ORDER]), strict=True))

    def shown_positions(self, source: Source) -> list[Position]:
        """Positions with enough drafts behind them to be worth a bar."""
        floor = max(3, self.rounds // 50)
        return [p for p in self.positions.get(source, []) if p.drafted >= floor]


def _follow(average: float | None, value: float) -> float:
    return value if average is None else average + EMA * (value - average)


def moving(rates: Sequence[float]) -> list[float]:
    """The moving acceptance after each drafting round."""
    out: list[float] = []
    for rate in rates:
        out.append(_follow(out[-1] if out else None, rate))
    return out


def speed_up(turn: Tally, session: Tally, measured: float = 0.0) -> float | None:
    """Rate of the turn against plain decoding: as it went in this session, else as the calibration measured it; None
    when neither is known."""
    plain = session.plain_rate or measured or None
    if turn.rate is None or plain is None or not turn.drafting:
        return None
    return turn.rate / plain


BARS = " ▁▂▃▄▅▆▇█"


def spark(values: Sequence[float], width: int, top: float | None = None) -> str:
    """The last `width` values as block eighths, zero being the lowest bar that is not a blank."""
    shown = list(values)[-width:]
    high = top if top is not None else max(shown, default=0.0)
    if high <= 0:
        return "▁" * len(shown)
    return "".join(BARS[1 + round(min(max(v / high, 0.0), 1.0) * 7)] for v in shown)


def bar(share: float, width: int) -> str:
    """A horizontal bar of eighths."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    return "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")


def human(count: int) -> str:
    """1843 → 1.8k."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k".replace(".0k", "k") if count < 1_000_000 else f"{count / 1e6:.1f}M"


def counted(count: int, noun: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def legend_of(counts: Mapping[Source, int]) -> dict[Source, int]:
    return dict(zip(ORDER, percentages([counts.get(s, 0) for s in ORDER]), strict=True))
