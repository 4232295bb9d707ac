"""Use a session of `taskweaver-ext serve` from another program, here or on another machine.

The session lives in the server: it goes on when this program ends, and `RemoteSession` goes on by
itself when the connection is cut. `AsyncRemoteSession` is the same for an event loop;
`examples/use_a_server.sh` and `examples/use_a_server.mjs` do without our package.

Prints:
    21 x 2 = 42
    The round has finished.
    Name? Ada
    files: ['numbers.txt']
"""

import subprocess
import sys

from taskweaver_ext import RemoteSession, SessionEventType, TaskWeaverEvent

SERVE = [sys.executable, "-m", "taskweaver_ext.cli", "serve", "--port", "0"]

# The only line that a server prints is its address, with the token. Elsewhere, copy it.
server = subprocess.Popen(SERVE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
assert server.stdout is not None
address = server.stdout.readline().strip()

with server, RemoteSession(address) as session:
    session.upload(b"21 2", "numbers.txt")
    code = "a, b = map(int, open('numbers.txt').read().split())\nprint(a, 'x', b, '=', a * b)"
    done = session.run(code)
    print(done.output, end="")
    print(f"The round has {done.state}.")

    def answer(event: TaskWeaverEvent) -> None:
        """Called for each event while the code runs; here for what it asks."""
        if event.t is SessionEventType.session_question and "question_id" in event.extra:
            session.answer(event.extra["question_id"], "answered", "Ada")

    asked = session.run("name = input()\nprint('Name?', name)", on_event=answer)
    print(asked.output.strip())
    print("files:", session.files())
    session.end()
    server.terminate()
