"""Drive a chat from any language: start a program, write commands, read events, all lines of JSON.

Nothing of the package is imported here: `taskweaver-ext chat --json` speaks a small protocol on its
standard streams, which the docstring of `taskweaver_ext/chat/protocol.py` tells on one page. The
chat below runs code; with a model set up, `send_message` asks the agent in the same way.

Prints:
    protocol 1
    asked: Your name?
    wrote: Hello Ada
    done: finished
    refused: There is no command "dance"
    done: failed
    exit code 1
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any

CODE = """
name = input("Your name?")
print("Hello", name)
"""


def send(stdin: IO[str], **command: object) -> None:
    """Write a command; the `id` is ours, and comes back with every reply to it."""
    stdin.write(json.dumps(command) + "\n")
    stdin.flush()


def drive(stdin: IO[str], lines: Iterator[dict[str, Any]]) -> None:
    """Run code, answer what it asks, and leave when all is done."""
    print("protocol", next(lines)["protocol"])
    send(stdin, command="run_code", language="python", code=CODE, id="hello")
    for line in lines:  # a line is an event, or a reply to a command
        match line:
            case {"event": "session_question", "msg": prompt, "extra": question}:
                print("asked:", prompt)
                answer = {"question_id": question["question_id"], "outcome": "answered"}
                send(stdin, command="answer", text="Ada", **answer)
            case {"event": "post_execution_output", "msg": text}:
                print("wrote:", text, end="")
            case {"reply": "done", "id": "hello", "outcome": outcome}:
                print("done:", outcome["state"])
                send(stdin, command="dance")
            case {"reply": "refused", "reason": reason}:
                print("refused:", reason.partition(".")[0])
                send(stdin, command="run_code", code="1 / 0", id="last")
            case {"reply": "done", "id": "last", "outcome": outcome}:
                print("done:", outcome["state"])
                stdin.close()  # at the end of its input the chat ends


def main() -> None:
    """Start a chat in a folder of its own, and drive it."""
    program = [sys.executable, "-m", "taskweaver_ext.cli"]  # or just taskweaver-ext
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [*program, "chat", "--json", "--kernel", "local"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as chat,
    ):
        assert chat.stdin is not None
        assert chat.stdout is not None
        drive(chat.stdin, map(json.loads, chat.stdout))
        print("exit code", chat.wait())


if __name__ == "__main__":
    main()
