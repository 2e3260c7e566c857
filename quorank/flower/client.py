"""Flower's ClientApp: it carries a task to the worker on its own machine and the worker's answer back, and knows no more.

A SuperNode runs whatever app its coordinator names; this one is installed with Quorank and named by reference, so no code
travels. All exceptions end here: Flower would send their full text, and with it paths and queries, to the coordinator.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from quorank import frames
from quorank.flower.worker import FAILED_WORD, SENT, SOCKET, ask

RECORD, CONTENT = "quorank", "content"

app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    """One task, one answer."""
    try:
        task = message.content[RECORD][CONTENT]
        parts = ask(os.environ.get(SOCKET, ""), task) if isinstance(task, bytes) else [FAILED_WORD]
        content = frames.pack(parts)
        _note(content)
    except Exception:  # as said above: nothing of it may leave
        content = frames.pack([FAILED_WORD])
    return Message(RecordDict({RECORD: ConfigRecord({CONTENT: content})}), reply_to=message)


def _note(content: bytes) -> None:
    """Write down for the node's owner what leaves, before it leaves."""
    folder = os.environ.get(SENT)
    if folder:
        Path(folder, f"{secrets.token_hex(8)}.sent").write_bytes(content)
