"""What an operator decides about a server; one frozen value, made by the command line. Reads no environment."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.config import Config


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
    config: Config = field(default_factory=Config)
    """What holds for requests that do not say: sampling, longest answer, thinking."""
    max_tokens_cap: int = 32768
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
