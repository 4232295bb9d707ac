"""Code that writes to the side socket of its kernel itself, and what that costs the client.

    python -m tests.support.forged_frames local FOLDER "a usage that is none"

runs such code in a session and prints, for each, one line of JSON: how it ended, how long that
took, and how much this process grew.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from taskweaver_ext.ces.environment import Environment
from tests.support.containers import container_environment
from tests.support.executions import LIMIT_SECONDS, MemoryWatch, OpenEnvironment
from tests.support.sandboxes import sandbox_environment

PLACES: dict[str, OpenEnvironment] = {
    "local": Environment,
    "guarded": lambda folder: Environment(folder, guard=True),
    "sandbox": sandbox_environment,
    "container": container_environment,
}

SIDE_SOCKET = """
import gc, json, os, socket, struct, time
wire = next(o for o in gc.get_objects() if type(o).__name__ == "Wire")._socket.dup()
wire.setblocking(True)
def send(kind, payload, size=None, ordinal=None):
    size = len(payload) if size is None else size
    wire.sendall(struct.pack("!BII", kind, ORDINAL if ordinal is None else ordinal, size) + payload)
def end(**fields):
    send(3, json.dumps({"status": "ok", **fields}).encode())
def end_as(text):
    send(3, text)
def say(kind, content):
    content = content if isinstance(content, bytes) else json.dumps(content).encode()
    send(2, kind.encode() + b"\\n" + content)
def display(mime_type, value, **more):
    say("display_data", {"data": {mime_type: value}, **more})
"""
WAIT = "\ntime.sleep(600)"

DEADLY: dict[str, tuple[str, str]] = {
    "39 MB of lists": (
        "send(2, b'display_data\\n{\"data\":[' + b'[],' * 13_000_000 + b'0]}')",
        "announced a message of 39,0",
    ),
    "lists in a small message": (
        "say('display_data', b'{\"data\":[' + b'[],' * 1_000_000 + b'0]}')",
        "too much memory",
    ),
    "texts in a small message": (
        "say('display_data', b'{\"data\":[' + b'\"\",' * 1_000_000 + b'0]}')",
        "too much memory",
    ),
    "wide characters": (
        "say('display_data', json.dumps({'data': {'a': 'x' * 10_000_000 + '\\U0001f600'}},"
        " ensure_ascii=False).encode())",
        "too much memory",
    ),
    "256 MB announced": ("send(2, b'x', 1 << 28)", "announced a message of 268,435,456 bytes"),
    "4 GB of runs announced": ("send(6, b'x', (1 << 32) - 1)", "announced a message of 4,29"),
    "a usage that is none": ("end(usage=5)", "'usage' is no object"),
    "negative seconds": ("end(usage={'cpu_seconds': -1})", "'cpu_seconds' is no measure"),
    "memory without end": (
        "end(usage={'peak_memory_bytes': 10 ** 30})",
        "'peak_memory_bytes' is no whole number",
    ),
    "no number": ("end(usage={'cpu_seconds': float('nan')})", "NaN is no number"),
    "a number too large": (
        'end_as(b\'{"status": "ok", "usage": {"cpu_seconds": 1e400}}\')',
        "a number is too large",
    ),
    "digits without end": ("end_as(b'{\"exit_code\": ' + b'9' * 9999 + b'}')", "no JSON"),
    "an exit code that is none": ("end(exit_code=True)", "'exit_code' is no whole number"),
    "a traceback that is none": ("end(traceback=[1])", "'traceback' is no list of texts"),
    "no status": ("end(status=None)", "'status' is no text"),
    "two statuses": ('end_as(b\'{"status": "ok", "status": {}}\')', "'status' is no text"),
    "an end that is no object": ("end_as(b'[]')", "no JSON object"),
    "nested JSON": ("say('display_data', b'[' * 100_000)", "no JSON"),
    "no UTF-8": ("say('display_data', b'{\"data\": \"\\xff\"}')", "no JSON"),
    "UTF-16": ("end_as('{\"status\": \"ok\"}'.encode('utf-16'))", "no JSON"),
    "runs that lie": ("send(6, struct.pack('!I', 1 << 31))", "runs of output"),
    "a kind that is none": ("send(77, b'x')", "kind 77"),
    "pipes with a text": ("send(5, b'x')", "kind 5"),
    "a type that is none": ("send(2, b'\\x1b]0;x' * 9999)", "of a type that is none"),
    "another's output": ("send(0, b'x', ordinal=ORDINAL + 1)", "was not asked for"),
    "another's end": ('send(3, b\'{"status": "ok"}\', ordinal=(1 << 32) - 1)', "not asked for"),
    "a question to nobody": ("say('input_request', {'prompt': 'x'})", "nobody answers any"),
    "a prompt that is none": ("say('input_request', {'prompt': {}})", "'prompt' is no text"),
    "a display that is none": ("say('display_data', {'data': []})", "'data' is no object"),
    "metadata that is none": ("display('a', 'b', metadata=5)", "'metadata' is no object"),
    "an id that is none": ("display('a', 'b', transient=5)", "'transient' is no object"),
    "a piece of nothing": ("send(7, b'x')", "a piece of a display that belongs to none"),
    "a piece that is too long": ("send(7, b'1 text\\n' + bytes(2 << 20))", "announced a message"),
    "pieces of one form and another": (
        "send(7, b'1 text\\nx'); send(7, b'1 json\\nx')",
        "pieces that do not belong together",
    ),
    "pieces without end": (
        "while True: send(7, b'1 text\\n' + bytes(1 << 20))",
        "pieces that do not belong together",
    ),
    "a display without its pieces": (
        "send(7, b'1 text\\nx')\n"
        "display('a', 1, parts={'b': {'number': 1, 'form': 'text', 'size': 2}})",
        "without the pieces that it named",
    ),
    "a display of a size that is none": (
        "display('a', 1, parts={'b': {'number': 1, 'form': 'text', 'size': -2}})",
        "'size' is no number of bytes",
    ),
    "left out is no list": ("display('a', 1, left_out={'kind': 1})", "what it left out"),
    "a reply of 30 MB": (
        """
import zmq
kernel = get_ipython().kernel
for router in gc.get_objects():
    if isinstance(router, zmq.Socket) and not router.closed and router.type == zmq.ROUTER:
        for identity in kernel.get_parent("shell") and kernel._parent_ident["shell"]:
            try:
                router.send_multipart([identity, bytes(30 << 20)], zmq.NOBLOCK)
            except zmq.ZMQError:
                pass
""",
        "closed the channel for requests, or sent a reply of more than 1,048,576 bytes",
    ),
    "a stream that is none": ("say('stream', {'name': [], 'text': 'x'})", "'name' is no text"),
}
"""What only a forger says, and what is said of the kernel's end."""

BOUNDED: dict[str, str] = {
    "displays without end": "for _ in range(300_000): display('text/plain', 'x')",
    "lists in displays": "for _ in range(40): display('a', [[]] * 200_000)",
    "names in displays": "for _ in range(100): display('x' * 5_000_000, '')",
    "updates of many displays": """
for number in range(20):
    display("text/plain", "x", transient={"display_id": str(number)})
for number in range(20):
    say("update_display_data", {"data": {"text/plain": "x" * 5_000_000},
                                "transient": {"display_id": str(number)}})
""",
    "parts of displays that never come": """
for number in range(1, 1000):
    send(7, b"%d json\\n" % number + b"[]," * 300_000)
""",
    "lists in parts of displays": """
for number in range(1, 4):
    for _ in range(40):
        send(7, b"%d json\\n" % number + b"[[]," + b"[]," * 300_000)
    size = 40 * 900_004
    display("a", 1, parts={"b": {"number": number, "form": "json", "size": size}})
""",
    "tags of logs": """
for _ in range(40):
    display("application/vnd.taskweaver.log+json", {"tag": "x" * 5_000_000})
""",
    "errors": "for _ in range(40): say('error', {'traceback': ['x' * 5_000_000]})",
    "replies": """
import zmq
kernel = get_ipython().kernel
routers = [o for o in gc.get_objects() if isinstance(o, zmq.Socket) and not o.closed
           and o.type == zmq.ROUTER]
for identity in kernel.get_parent("shell") and kernel._parent_ident["shell"]:
    for router in routers:
        for size in (1_000, 500_000):
            for _ in range(1000):
                try:
                    router.send_multipart([identity, bytes(size)], zmq.NOBLOCK)
                except zmq.ZMQError:
                    break
""",
}
"""What is no nonsense by itself: it is kept or left out, and the code ends as it likes."""

ENDLESS: dict[str, str] = {
    "lists": "p = b'[' + b'[],' * 99_999 + b'0]'\nwhile True: display('a', json.loads(p))",
    "clears": "p = struct.pack('!BII', 2, ORDINAL, 15) + b'clear_output\\n{}'\n"
    "while True: wire.sendall(p * 1000)",
    "ends of earlier executions": "p = struct.pack('!BII', 3, 1, 15) + b'{\"status\":\"ok\"}'\n"
    "while True: wire.sendall(p * 1000)",
    "output": "while True: send(1, b'x' * 1_000_000)",
    "a child that writes on": """
if os.fork() == 0:
    os.setsid()
    p = struct.pack("!BII", 2, ORDINAL, 15) + b"clear_output\\n{}"
    while True: wire.sendall(p)
""",
}
"""What goes on for ever; the timeout ends it."""


@dataclass(frozen=True)
class Outcome:
    """What became of one attack."""

    name: str
    status: str
    error: str
    notices: list[str]
    seconds: float
    growth: int
    next_output: str


def code_of(name: str) -> str:
    """The code of an attack, but for its number."""
    if name in DEADLY:
        return DEADLY[name][0] + WAIT
    return BOUNDED[name] if name in BOUNDED else ENDLESS[name] + WAIT


def attack(environment: Environment, name: str, ordinal: int) -> Outcome:
    """Run an attack as the execution with this number of its kernel, and something after it."""
    memory = MemoryWatch(os.getpid())
    began = time.monotonic()
    result = environment.execute_code(
        "s1",
        f"ORDINAL = {ordinal}\n{SIDE_SOCKET}\n{code_of(name)}",
        on_event=lambda _: None,
        timeout=3.0 if name in ENDLESS else LIMIT_SECONDS,
    )
    seconds, growth = time.monotonic() - began, memory.growth()
    after = environment.execute_code("s1", "print('fresh')", timeout=LIMIT_SECONDS)
    return Outcome(
        name=name,
        status=result.status.name,
        error=result.error or "",
        notices=[notice.message for notice in result.notices],
        seconds=seconds,
        growth=growth,
        next_output="".join(after.stdout),
    )


def main(place: str, folder: str, names: list[str]) -> None:
    """Attack this process from a kernel in some place, once with each."""
    with PLACES[place](Path(folder)) as environment:
        for name in names:
            environment.start_session("s1")
            environment.execute_code("s1", "1")
            outcome = attack(environment, name, ordinal=2)
            sys.stdout.write(f"{json.dumps(asdict(outcome))}\n")
            sys.stdout.flush()
            environment.stop_session("s1")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
