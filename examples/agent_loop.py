"""Give an agent of your own a Python tool whose variables stay from call to call.

The model is a stand-in that says what a real one might. With a vendor's client, `ask_model` is
one request with `PythonTool.schema` among its tools.

Prints:
    running: print(total := sum([10, 40, 70]))
      120
    running: print(totl / 3)
    running: print(total / 3)
      40.0
    The mean of the sales is 40.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from taskweaver_ext import ExecutionEvent, OutputProduced, PythonTool

REPLIES: Sequence[Mapping[str, Any] | str] = (
    {"cells": [{"code": "print(total := sum([10, 40, 70]))"}]},
    {"cells": [{"code": "print(totl / 3)"}]},  # a mistake: the model reads the traceback
    {"cells": [{"code": "print(total / 3)"}], "timeout": 60},
    "The mean of the sales is 40.",
)


def ask_model(conversation: Sequence[Mapping[str, str]]) -> Mapping[str, Any] | str:
    """Return the arguments of a call of the tool, or the answer."""
    return REPLIES[sum(message["role"] == "tool" for message in conversation)]


def show(cell: int, event: ExecutionEvent) -> None:
    """Called for what each cell does, while it does it."""
    if isinstance(event, OutputProduced):
        print(" ", event.text, end="")


with PythonTool() as tool:
    conversation = [{"role": "user", "content": "What is the mean of 10, 40 and 70?"}]
    while not isinstance(reply := ask_model(conversation), str):
        print("running:", reply["cells"][0]["code"])
        result = tool.call(reply, session_id="conversation-1", on_event=show)
        # Short, with the traceback or the reason when it failed: made for the model to read.
        conversation.append({"role": "tool", "content": result.text})
    print(reply)
