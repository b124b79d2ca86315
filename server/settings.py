"""What an operator decides about a server; one frozen value, made by the command line. Reads no environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = 8080
    keys: tuple[str, ...] = ()
    """Any of them opens every route; none: no key is asked for."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names beyond loopback and IP literals that requests may name."""
    allowed_origins: tuple[str, ...] = ()
    """Browser origins beyond loopback ones."""
    aliases: tuple[str, ...] = ()
    """Further model names, with * and ? as wild cards, that mean the loaded model."""
    default_max_tokens: int = 2048
    max_tokens_cap: int = 32768
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of `Sampling` for requests that do not give them."""
    thinking: bool | None = None
    """For clients that say nothing about thinking; None leaves it to the template."""
    effort: str | None = None
    max_queue: int = 64
    """Requests, running and waiting, beyond which new ones are refused."""
    max_choices: int = 8
    max_body: int = 32 << 20
    max_header: int = 32 << 10
    body_timeout: float = 30.0
    """Seconds in which a request's body must be here."""
    write_timeout: float = 120.0
    """Seconds that one write may wait for its reader."""
    ping: float = 8.0
    """Seconds of silence after which a stream says that it lives; agents give up after 10 to 20."""
    grace: float = 5.0
    """Seconds that open requests have after the signal to stop."""
    stored: int = 256
    """Responses kept for previous_response_id and GET."""
