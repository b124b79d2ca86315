"""`dspark-chat import`: chats of other programs, and exports of our own, into the list of chats."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from engine import paths
from engine.chat.terminal_safe import clean, one_line
from engine.errors import DsparkError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="Markdown, JSON or plain text")


def run(args: argparse.Namespace) -> int:
    from tui.conversation import importer
    from tui.conversation.stats import counted
    from tui.conversation.store import Store

    code = 0
    store = Store(paths.data() / "chats.db")
    try:
        if store.note:
            print(f"dspark-chat: {clean(store.note)}", file=sys.stderr)
        for file in args.files:
            try:
                chat = importer.read(file.expanduser())
            except DsparkError as error:
                print(f"dspark-chat: {clean(str(error))}", file=sys.stderr)
                code = error.exit_code
                continue
            for turn in chat.turns:
                store.save(chat, turn)
            store.settle(timeout=600)
            if store.failed:
                print(f"dspark-chat: {clean(store.failed)}", file=sys.stderr)
                return 1
            store.rename(chat.id, chat.title)
            print(f"“{one_line(chat.name)}”, {counted(len(chat.turns), 'turn')}: dspark-chat --resume {chat.id[:8]}")
    finally:
        store.close()
    return code
