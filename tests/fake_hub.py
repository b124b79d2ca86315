"""A model hub on loopback, as much of one as huggingface_hub asks for: repository info, file tree, files."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SHA = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """`files` maps repository to {name: content}; `gated` ones refuse; `seconds_a_block` slows the files down."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.requests: list[str] = []
        self.seconds_a_block = 0.0
        self.address = ""


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def _answer(self, body: bool) -> None:
            path = self.path.split("?", 1)[0]
            hub.requests.append(f"{self.command} {path}")
            parts = path.strip("/").split("/")
            try:
                if parts[:2] == ["api", "models"]:
                    self._api("/".join(parts[2:4]), parts[4:], body)
                elif len(parts) >= 5 and parts[2] == "resolve":
                    self._file("/".join(parts[:2]), "/".join(parts[4:]), body)
                else:
                    self._refuse(404, "EntryNotFound")
            except (BrokenPipeError, ConnectionResetError):
                pass

        def _api(self, repo: str, rest: list[str], body: bool) -> None:
            if repo in hub.gated:
                return self._refuse(403, "GatedRepo")
            if repo not in hub.files:
                return self._refuse(404, "RepoNotFound")
            names = hub.files[repo]
            if rest[:1] == ["tree"]:
                tree = [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for name, data in names.items()
                ]
                return self._send(json.dumps(tree).encode(), body, {"Content-Type": "application/json"})
            info = {"id": repo, "sha": SHA, "siblings": [{"rfilename": n} for n in names], "private": False}
            return self._send(json.dumps(info).encode(), body, {"Content-Type": "application/json"})

        def _file(self, repo: str, name: str, body: bool) -> None:
            data = hub.files.get(repo, {}).get(name)
            if data is None:
                return self._refuse(404, "EntryNotFound")
            tag = hashlib.sha1(data).hexdigest()
            return self._send(data, body, {"ETag": f'"{tag}"', "X-Repo-Commit": SHA})

        def _send(self, data: bytes, body: bool, headers: dict[str, str]) -> None:
            self.send_response(200)
            for key, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(key, value)
            self.end_headers()
            for start in range(0, len(data) if body else 0, 1 << 14):
                self.wfile.write(data[start : start + (1 << 14)])
                if hub.seconds_a_block:
                    time.sleep(hub.seconds_a_block)

        def _refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Handler


@contextmanager
def serving() -> Iterator[FakeHub]:
    hub = FakeHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
