"""Errors of the engine. Each message is one sentence for a person, with the way out; each class has an exit code.

DsparkError                      1
├── UsageError                   2   the request or a flag makes no sense
│   ├── UnknownModel                 no such model; carries the nearest names
│   ├── UnknownDrafter               no such drafter for this model, or it does not fit
│   ├── ContextOverflow              prompt and budget exceed the window
│   ├── RequestTooLarge              its state alone would take more memory than there is for requests
│   ├── ImageUnsupported             a picture for a text-only model
│   └── PictureUnreadable            a file that is no picture, or one that cannot be used
├── LoadError                    1   something on disk cannot be used
│   ├── WeightsMissing               folder without weights, or an incomplete snapshot
│   ├── WeightsDamaged               truncated or unreadable file
│   ├── UnsupportedModel             a family, packaging or quantisation that cannot run, with the reason
│   ├── DrafterRefused               a drafter file that would not be what it says
│   └── RemoteCodeRefused            the checkpoint wants to run its own code
├── FetchError                   1   a download did not happen
│   ├── Offline                      no network, and not on disk
│   ├── NoSpace                      not enough disk
│   └── Gated                        licence or login needed
├── BrokenLogits                 1   the target's output is not numbers
├── MemoryShort                  1   does not fit this machine
├── EngineClosed                 1   submit after close
└── Cancelled                  130   stopped by the user
"""

from __future__ import annotations

from collections.abc import Iterable


def human_bytes(count: float) -> str:
    """A size as every sentence and screen says it: 870 kB, 1.2 MB, 18 MB, 1.8 GB. Decimal units, as disks, model hubs
    and file managers count."""
    if count < 1e6:
        return f"{count / 1e3:.0f} kB"
    if count < 1e9:
        return f"{count / 1e6:.1f} MB" if count < 1e7 else f"{count / 1e6:.0f} MB"
    return f"{count / 1e9:.1f} GB"


class DsparkError(Exception):
    """Base of all errors that are meant for a person."""

    exit_code = 1


class UsageError(DsparkError):
    exit_code = 2


class UnknownModel(UsageError):
    def __init__(self, message: str, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.nearest = nearest


class UnknownDrafter(UsageError):
    pass


class ContextOverflow(UsageError):
    def __init__(self, message: str, tokens: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.limit = limit


class RequestTooLarge(UsageError):
    def __init__(self, message: str, needed: int, budget: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.budget = budget


class ImageUnsupported(UsageError):
    pass


class PictureUnreadable(UsageError):
    pass


class LoadError(DsparkError):
    pass


class WeightsMissing(LoadError):
    pass


class WeightsDamaged(LoadError):
    pass


class UnsupportedModel(LoadError):
    pass


class DrafterRefused(LoadError):
    pass


class RemoteCodeRefused(LoadError):
    pass


class FetchError(DsparkError):
    pass


class Offline(FetchError):
    pass


class NoSpace(FetchError):
    pass


class Gated(FetchError):
    pass


class BrokenLogits(DsparkError):
    pass


class MemoryShort(DsparkError):
    pass


class EngineClosed(DsparkError):
    pass


class Cancelled(DsparkError):
    exit_code = 130


def did_you_mean(word: str, known: Iterable[str], sign: str = "", cutoff: float = 0.7) -> str:
    """The way out of a misspelling, to be put behind a sentence: the nearest known name, or nothing when none is near.

    sign: written before the name. cutoff: how alike they must be, 1 for equal.
    """
    import difflib  # only mistakes need it

    near = difflib.get_close_matches(word.lower(), list(known), 1, cutoff)
    return f" Did you mean {sign}{near[0]}?" if near else ""
