"""Anthropic Messages."""

from server.api.anthropic.answer import answer, error_body
from server.api.anthropic.request import parse, parse_count
from server.api.anthropic.stream import MessageStream
from server.api.dialect import Counter, Dialect

DIALECT = Dialect(
    path="/messages",
    parse=parse,
    answer=answer,
    stream=MessageStream,
    error=error_body,
    id_prefix="msg_",
    call_prefix="toolu_",
    key_header="x-api-key",
    news="first",  # the stream begins with the prompt's counts
    counter=Counter("/messages/count_tokens", parse_count, lambda count: {"input_tokens": count}),
)
