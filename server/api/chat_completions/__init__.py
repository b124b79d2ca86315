"""OpenAI Chat Completions."""

from server.api.base import openai_error
from server.api.chat_completions.answer import answer
from server.api.chat_completions.request import parse
from server.api.chat_completions.stream import ChatStream
from server.api.dialect import Dialect

DIALECT = Dialect(
    path="/chat/completions", parse=parse, answer=answer, stream=ChatStream, error=openai_error, id_prefix="chatcmpl-"
)
