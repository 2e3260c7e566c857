"""Plain Flower, to measure beside: its own FedAvg, and a client that returns what it was sent.

Nothing of Quorank's is in here, and nothing here is used to learn anything.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quorank.files import write_whole

ORDERS, BEGUN, DONE = (
    "QUORANK_PLAIN",
    ".begun",
    ".done",
)  # as in flower_bench, whose import would be counted as Flower's

client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """One task, one answer."""
    content = RecordDict({"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 4.0})})
    return Message(content, reply_to=message)


@server.main()
def average(grid: Grid, context: Context) -> None:
    """Flower's own rounds; writes down when each of them ended."""
    path = os.environ[ORDERS]
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        orders: dict[str, Any] = json.load(file)
    nodes, times = orders["nodes"], list[float]()

    def note(round_: int, arrays: ArrayRecord) -> None:
        if round_ == 1:  # the first round was a rehearsal
            write_whole(path + BEGUN, "")
        if round_ >= 1:
            times.append(time.time())

    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    first = ArrayRecord([np.zeros(orders["parameters"])])
    strategy.start(grid, first, num_rounds=1 + orders["rounds"], evaluate_fn=note)
    write_whole(path + DONE, json.dumps(times))
