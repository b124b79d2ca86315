"""Clients that leave, crawl, pile up or attack; limits, metrics, logs, shutdown."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import select
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from scripted import Script, by_prompt
from sse_reader import events

from engine.prefix_cache.cache import PrefixCache
from engine.prefix_cache.disk import DiskTier
from server.http.sse import EventStream
from server.settings import Settings
from tests.engine.prefix_cache.made import snapshot

USER = [{"role": "user", "content": "hi"}]
FOREVER = 3600.0
"""Seconds: who waits for it never comes to an end, so that no test needs a clock to see that nobody did."""
STREAM = {"messages": USER, "stream": True, "max_tokens": 2000}


def until(check: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.02)
    return check()


def raw(live: Any, data: bytes, wait: float = 10.0) -> bytes:
    """Everything that the server answers to these bytes."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=wait) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    out = b""
    try:
        while part := connection.recv(65536):
            out += part
    except OSError:
        pass
    return out


def post(path: str, body: Any, *, headers: str = "", host: str = "127.0.0.1") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{headers}"
    return head.encode() + f"Content-Length: {len(content)}\r\n\r\n".encode() + content


def idle(live: Any) -> bool:
    return live.gauge("num_requests_running") == 0 == live.gauge("num_requests_waiting")


# Leaving --------------------------------------------------------------------------------------------------------------


def leave_after(live: Any, path: str, body: dict[str, Any], tokens: int) -> None:
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as connection:
        connection.sendall(post(path, body))
        seen = b""
        while seen.count(b"data: ") < tokens + 1:
            part = connection.recv(4096)
            if not part:
                return
            seen += part


def test_p01_twenty_clients_leave_at_the_third_token(start: Any) -> None:
    live = start(Script("word " * 100, delay=0.02, end=False), max_batch=20)
    threads = [threading.Thread(target=leave_after, args=(live, "/v1/chat/completions", STREAM, 3)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert until(lambda: idle(live) and live.engine.active == 0, 3)
    live.engine.play = lambda request, prompt: Script("fine")
    assert live.http.post("/v1/chat/completions", json={"messages": USER}).json()["choices"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("streamed", [True, False])
def test_p02_o45_leaving_during_prefill_stops_it(start: Any, path: str, streamed: bool) -> None:
    live = start(by_prompt({"slow": Script("x", prefill=FOREVER)}, Script("quick")), max_batch=1)
    body = {"messages": [{"role": "user", "content": "slow"}], "input": "slow", "max_tokens": 9, "stream": streamed}
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as connection:
        connection.sendall(post(path, body))
        assert until(lambda: live.engine.chunks_read > 1)
    assert live.http.post("/v1/chat/completions", json={"messages": USER}).json()["choices"]
    assert until(lambda: idle(live))


def test_leaving_before_the_body_is_complete_is_no_failure(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    live = start(Script("x"))
    with caplog.at_level(logging.INFO, "dspark"):
        with socket.create_connection(("127.0.0.1", live.port), timeout=10) as connection:
            connection.sendall(post("/v1/chat/completions", STREAM)[:-10])
            time.sleep(0.1)
        assert until(lambda: " 499 " in caplog.text)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert idle(live)


def test_p02_leaving_the_queue(start: Any) -> None:
    live = start(Script("x", prefill=FOREVER), max_batch=1)
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as first:
        first.sendall(post("/v1/chat/completions", STREAM))
        assert until(lambda: live.engine.active == 1)
        with socket.create_connection(("127.0.0.1", live.port), timeout=10) as second:
            second.sendall(post("/v1/chat/completions", STREAM))
            assert until(lambda: live.gauge("num_requests_waiting") == 1)
        assert until(lambda: live.gauge("num_requests_waiting") == 0)
        assert live.gauge("num_requests_running") == 1
    assert until(lambda: idle(live))


def test_a_hundred_clients_vanish_at_random_moments(start: Any) -> None:
    chance = random.Random(1)
    live = start(
        lambda request, prompt: Script("word " * 40, prefill=chance.random() * 0.1, delay=0.005),
        settings=Settings(max_queue=200),
    )

    def vanish(path: str, seconds: float, streamed: bool) -> None:
        with socket.create_connection(("127.0.0.1", live.port), timeout=10) as connection:
            connection.sendall(post(path, {"messages": USER, "input": "hi", "max_tokens": 300, "stream": streamed}))
            connection.settimeout(seconds)
            read_all(connection)

    paths = ["/v1/chat/completions", "/v1/messages", "/v1/responses"]
    threads = [
        threading.Thread(
            target=vanish, args=(chance.choice(paths), chance.random() * 0.5 + 0.001, chance.random() < 0.7)
        )
        for _ in range(100)
    ]
    for thread in threads:
        thread.start()
        time.sleep(0.003)
    for thread in threads:
        thread.join()
    assert until(lambda: idle(live) and live.engine.active == 0)
    assert live.http.post("/v1/chat/completions", json={"messages": USER}).status_code == 200


def test_a_crawling_reader_slows_nobody(start: Any) -> None:
    live = start(by_prompt({"crawl": Script("x" * 20000, block=50)}, Script("quick")))
    body = {"messages": [{"role": "user", "content": "crawl"}], "stream": True, "max_tokens": 20001}
    with socket.socket() as crawler:
        crawler.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        crawler.connect(("127.0.0.1", live.port))
        crawler.sendall(post("/v1/chat/completions", body))
        crawler.recv(1)
        for _ in range(5):
            assert live.http.post("/v1/chat/completions", json={"messages": USER}).status_code == 200
            crawler.recv(1)
        assert until(lambda: live.engine.active == 0), "the engine never waits for a reader"


async def test_a_reader_that_takes_nothing_is_given_up() -> None:
    """What a socket buffers is the system's business, so the transport is played."""
    cancelled: list[bool] = []
    stuck = asyncio.Event()

    async def frames() -> AsyncIterator[bytes]:
        while True:
            yield b"data: x\n\n"

    async def receive() -> Any:
        await asyncio.sleep(FOREVER)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            stuck.set()
            await asyncio.sleep(FOREVER)

    await EventStream(frames(), lambda: cancelled.append(True), 0.1)({"type": "http"}, receive, send)
    assert stuck.is_set()
    assert cancelled


# Limits ---------------------------------------------------------------------------------------------------------------


def test_p05_full_queue(start: Any) -> None:
    live = start(Script("x", prefill=60), settings=Settings(max_queue=2), max_batch=1)
    connections = [socket.create_connection(("127.0.0.1", live.port), timeout=10) for _ in range(2)]
    try:
        for connection in connections:
            connection.sendall(post("/v1/chat/completions", STREAM))
        assert until(lambda: live.gauge("num_requests_running") + live.gauge("num_requests_waiting") == 2)
        refused = live.http.post("/v1/messages", json={"messages": USER, "max_tokens": 5})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"
    finally:
        for connection in connections:
            connection.close()
    assert until(lambda: idle(live))


def test_p05_loading_and_no_model(start: Any) -> None:
    live = start(Script("x"))
    holder = live.app.service.holder
    engine, holder._engine = holder._engine, None
    holder.state = "loading"
    answer = live.http.post("/v1/chat/completions", json={"messages": USER})
    assert answer.status_code == 503
    assert "retry-after" in answer.headers
    assert live.http.get("/health").status_code == 503
    holder.state = "no_model"
    assert live.http.post("/v1/chat/completions", json={"messages": USER}).status_code == 503
    assert live.http.get("/v1/models").json()["data"] == []
    holder._engine, holder.state = engine, "ok"
    assert live.http.get("/health").json()["status"] == "ok"


def test_h01_chunked_gzip_keep_alive_and_pipelining(start: Any) -> None:
    live = start(Script("ok"))
    content = json.dumps({"messages": USER}).encode()
    chunked = live.http.post(
        "/v1/chat/completions", content=iter([content[:5], content[5:]]), headers={"content-type": "application/json"}
    )
    assert chunked.status_code == 200
    assert live.http.post("/v1/chat/completions", content=b"x", headers={"content-encoding": "gzip"}).status_code == 415
    one = post("/v1/chat/completions", {"messages": USER})
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as connection:
        for _ in range(2):
            connection.sendall(one)
            seen = b""
            while b"finish_reason" not in seen:
                seen += connection.recv(65536)
            assert b"200 OK" in seen
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as connection:
        connection.sendall(one + post("/v1/chat/completions", {"messages": USER}, headers="Connection: close\r\n"))
        answers = read_all(connection)
    assert answers.count(b"200 OK") == 2


def test_h01_sizes(start: Any) -> None:
    live = start(Script("ok"), settings=Settings(max_body=10000))
    assert b" 431 " in raw(live, post("/v1/messages", {}, headers=f"X-Big: {'x' * 65536}\r\n")).split(b"\r\n")[0]
    big = live.http.post("/v1/messages", content=b"x" * 20000)
    assert big.status_code == 413
    assert big.json()["error"]["type"] == "request_too_large"
    lying = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", live.port), timeout=60) as connection:
        connection.sendall(lying)
        assert b" 413 " in connection.recv(100), "answered without reading"
    endless = live.http.post("/v1/messages", content=iter([b"x" * 4000] * 5))
    assert endless.status_code == 413


def test_h01_slow_bodies_time_out(start: Any) -> None:
    live = start(Script("ok"), settings=Settings(body_timeout=0.6))
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as connection:
        connection.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
        for _ in range(90):
            connection.sendall(b"{")
            if select.select([connection], [], [], 0.1)[0]:
                break
        assert b" 408 " in connection.recv(100), "each byte is in time, all of them together are not"
    half_open = [socket.create_connection(("127.0.0.1", live.port)) for _ in range(100)]
    assert live.http.post("/v1/messages", json={"messages": USER, "max_tokens": 5}).status_code == 200
    for connection in half_open:
        connection.close()


def test_h02_host_and_origin(start: Any) -> None:
    live = start(Script("ok"), settings=Settings(allowed_origins=("https://ui.example",), allowed_hosts=("box.lan",)))

    def status(**headers: str) -> int:
        return live.http.post("/v1/chat/completions", json={"messages": USER}, headers=headers).status_code

    for host in ("127.0.0.1:1", "localhost", "[::1]:8080", "box.lan", "192.168.1.5:8080"):
        assert status(host=host) == 200, host
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "a b"):
        assert status(host=host) in (400, 403), host
    assert status(origin="https://ui.example") == 200
    assert status(origin="http://localhost:3000") == 200
    for origin in ("https://evil.example", "null", "https://ui.example.evil", "http://localhost.evil"):
        assert status(origin=origin) == 403, origin
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "x-api-key"}
    allowed = live.http.options("/v1/messages", headers={"origin": "https://ui.example", **asked})
    assert allowed.status_code == 204
    assert allowed.headers["access-control-allow-origin"] == "https://ui.example"
    assert "x-api-key" in allowed.headers["access-control-allow-headers"]
    other = live.http.options("/v1/messages", headers={"origin": "https://evil.example", **asked})
    assert "access-control-allow-origin" not in other.headers
    assert other.status_code == 403


def test_admin_needs_a_key(start: Any) -> None:
    live = start(Script("ok"))
    for method, path in (
        ("POST", "/admin/load"),
        ("POST", "/admin/unload"),
        ("GET", "/admin/cache"),
        ("GET", "/admin/status"),
    ):
        assert live.http.request(method, path, json={"model": "x"} if method == "POST" else None).status_code == 403
    live = start(Script("ok"), settings=Settings(keys=("k",)))
    key = {"x-api-key": "k"}
    assert live.http.get("/admin/status", headers=key).json()["state"] == "ok"
    assert live.http.post("/admin/load", json={"model": "x"}, headers=key).status_code == 501
    assert live.http.get("/admin/cache", headers=key).status_code == 404
    assert live.http.post("/admin/unload", headers=key).json()["state"] == "no_model"
    assert live.engine.closed


# Numbers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("query", "left"), [("", 1), ("?disk=false", 1), ("?disk=true", 0)])
def test_the_cache_can_be_cleared_with_or_without_its_files(start: Any, tmp_path: Path, query: str, left: int) -> None:
    live = start(settings=Settings(keys=("k",)))
    cache = PrefixCache(1 << 20, DiskTier(tmp_path, least=1))
    live.engine.options.cache = cache
    cache.put([1, 2, 3], 3, "key", snapshot([1, 2, 3], ("append",)), kind="turn")
    cache.disk.close()
    headers = {"x-api-key": "k"}
    stats = live.http.get("/admin/cache", headers=headers).json()
    assert (stats["entries"], stats["disk_entries"]) == (1, 1)
    assert live.http.delete("/admin/cache?disk=yes", headers=headers).status_code == 400
    stats = live.http.delete(f"/admin/cache{query}", headers=headers).json()
    assert (stats["entries"], stats["disk_entries"]) == (0, left)


def test_h03_metrics_add_up(start: Any) -> None:
    live = start(Script("word " * 20, block=4))
    prompt = completion = cached = accepted = drafted = 0
    for _ in range(4):
        found = live.http.post("/v1/chat/completions", json={"messages": USER, "x_dspark": True}).json()
        prompt += found["usage"]["prompt_tokens"]
        completion += found["usage"]["completion_tokens"]
        cached += found["usage"]["prompt_tokens_details"]["cached_tokens"]
        accepted += found["x_dspark"]["accepted"]
        drafted += found["x_dspark"]["drafted"]
    assert live.gauge("prompt_tokens_total") == prompt
    assert live.gauge("generation_tokens_total") == completion
    assert live.gauge("prefix_cache_hits_total") == cached > 0
    assert live.gauge("prefix_cache_queries_total") == prompt
    assert live.gauge("spec_decode_num_accepted_tokens_total") == accepted > 0
    assert live.gauge("spec_decode_num_draft_tokens_total") == drafted
    from prometheus_client.parser import text_string_to_metric_families

    families = {f.name: f for f in text_string_to_metric_families(live.http.get("/metrics").text)}
    positions = families["dspark:spec_decode_num_accepted_tokens_per_pos"].samples
    assert sum(s.value for s in positions if s.name.endswith("_total")) == accepted
    for name in (
        "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prefix_cache_queries",
        "prefix_cache_unsound", "prefix_cache_hits", "num_preemptions", "prompt_tokens", "generation_tokens",
        "request_success",
        "time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds",
        "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
        "iteration_tokens_total", "spec_decode_num_drafts", "spec_decode_num_draft_tokens",
        "spec_decode_num_accepted_tokens", "spec_decode_num_accepted_tokens_per_pos",
    ):  # fmt: skip
        assert f"dspark:{name}" in families, name
    assert sum(s.value for s in families["dspark:request_success"].samples if s.name.endswith("_total")) == 4


def test_h04_logs_hold_no_prompts_keys_or_injected_lines(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    live = start(by_prompt({"boom": Script("x", fail_after=0)}, "ok"), settings=Settings(keys=("sk-secret-key",)))
    hostile = "PROMPT-TEXT\r\nFAKE LOG LINE\x1b[31m" + "x" * 10**6
    key = {"x-api-key": "sk-secret-key"}
    with caplog.at_level(logging.DEBUG, "dspark"):
        live.http.post(
            "/v1/messages", json={"messages": [{"role": "user", "content": hostile}], "max_tokens": 5}, headers=key
        )
        live.http.post(
            "/v1/messages", json={"messages": [{"role": "user", "content": "boom"}], "max_tokens": 5}, headers=key
        )
        live.http.post("/v1/messages", json={"messages": USER}, headers={"x-api-key": "sk-wrong-guess"})
        live.http.get("/nowhere%0d%0aFAKE%1b%5b31m", headers=key)
        # The line is written after the answer, by the server's own thread, while this level holds.
        assert until(lambda: sum(r.name == "dspark.access" for r in caplog.records) == 4)
    text = "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("dspark"))
    for secret in ("PROMPT-TEXT", "FAKE LOG LINE", "sk-secret", "sk-wrong", "\x1b", "\r"):
        assert secret not in text
    assert all("\n" not in r.getMessage() for r in caplog.records if r.name == "dspark.access")


def test_tokenize_and_detokenize(start: Any) -> None:
    live = start()
    found = live.http.post("/tokenize", json={"prompt": "h\u00e9"}).json()
    assert found["count"] == 3
    assert live.http.post("/detokenize", json={"tokens": found["tokens"]}).json()["prompt"] == "h\u00e9"
    chat = live.http.post("/v1/tokenize", json={"messages": USER}).json()
    assert chat["count"] == live.http.post("/v1/messages/count_tokens", json={"messages": USER}).json()["input_tokens"]
    assert live.http.post("/tokenize", json={}).status_code == 400
    assert live.http.post("/detokenize", json={"tokens": [10**9]}).status_code == 400


def test_p04_cached_tokens_follow_the_conversation(start: Any) -> None:
    live = start(Script("ok"))
    document = "line of a document. " * 100
    first = [{"role": "user", "content": document}]
    second = [*first, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
    edited = [{"role": "user", "content": document[:1000] + "EDIT" + document[1004:]}]

    def cached(messages: list[dict[str, Any]]) -> int:
        return live.http.post("/v1/chat/completions", json={"messages": messages}).json()["usage"][
            "prompt_tokens_details"
        ]["cached_tokens"]

    assert cached(first) == 0
    assert cached(second) >= len(document)
    assert 1000 <= cached(edited) < 1100


def test_o37_o45_next_request_starts_at_once_after_a_client_left(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    live = start(by_prompt({"long": Script("word " * 40_000, delay=0.05)}, Script("quick")), max_batch=1)
    body = {"messages": [{"role": "user", "content": "long"}], "stream": True, "max_tokens": 3000}
    with caplog.at_level(logging.INFO, "dspark"):
        leave_after(live, "/v1/chat/completions", body, 3)
        assert until(lambda: "a client left" in caplog.text)
    found = events(live, "/v1/chat/completions", {"messages": USER, "stream": True})
    assert found[-1][1] == "[DONE]"


def test_memory_stays_flat_over_many_requests(start: Any) -> None:
    live = start(Script("word " * 10))
    live.engine._remember = lambda ids: None

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    if not os.path.exists("/proc/self/statm"):
        pytest.skip("needs /proc")
    for count in (30, 90):
        for i in range(count):
            live.http.post("/v1/chat/completions", json={"messages": USER, "stream": bool(i % 2)})
            live.engine.requests.clear()
            live.engine.prompts.clear()
        if count == 30:
            before = resident()
    assert resident() - before < 8 << 20
    assert len(live.app.context.store._kept) == 0
