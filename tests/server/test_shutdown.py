"""Stopping a server with streams open: told, in time, and with exit code 0."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from scripted import Script, ScriptedEngine
from server.app import App
from server.generation.engine_holder import Holder
from server.run import Server, listen
from server.settings import Settings
settings = Settings(port=0, grace=3)
taken = listen(settings)
print(taken.getsockname()[1], flush=True)
engine = ScriptedEngine(Script("word " * 500, delay=0.05))
Server(App(Holder(engine=engine), settings), settings).run(sockets=[taken])
print("ended cleanly", flush=True)
"""


def test_p05_streams_end_with_an_error_event_and_exit_code_0() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 2000}
        lines: list[str] = []
        with httpx.stream("POST", f"{url}/v1/messages", json=body, timeout=120, trust_env=False) as response:
            for line in response.iter_lines():
                lines.append(line)
                if len(lines) == 12:
                    process.send_signal(signal.SIGTERM)
        last = json.loads([x for x in lines if x.startswith("data: ")][-1][6:])
        assert last["type"] == "error"
        assert last["error"]["type"] == "overloaded_error"
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert "ended cleanly" in out
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
