"""Flower's ClientApp: it carries a task to the worker on its own machine and the worker's answer back, and knows no more.

A SuperNode runs whatever app its coordinator names; this one is installed with Quorank and named by reference, so no code
travels. All exceptions end here: Flower would send their full text, and with it paths and queries, to the coordinator.
"""

from __future__ import annotations

import os

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from quorank.flower.app import CONTENT, RECORD
from quorank.flower.worker import FAILED, SOCKET, ask

app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    """One task, one answer."""
    try:
        task = message.content[RECORD][CONTENT]
        content = ask(os.environ.get(SOCKET, ""), task) if isinstance(task, bytes) else FAILED
    except Exception:  # as said above: nothing of it may leave
        content = FAILED
    return Message(RecordDict({RECORD: ConfigRecord({CONTENT: content})}), reply_to=message)
