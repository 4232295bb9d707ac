"""Watch everything that code does while it runs, as typed events, and stop code that runs on.

Prints:
    stdout: working
    stderr: careful
    value: 42
    ended: success
    ended: timeout
    The variables are still there: True
"""

from taskweaver_ext import (
    DisplayProduced,
    Environment,
    ExecutionEvent,
    ExecutionFinished,
    OutputProduced,
)

CODE = """
import sys
print("working")
print("careful", file=sys.stderr)
6 * 7
"""


def show(event: ExecutionEvent) -> None:
    """Called on the thread that called `execute_code`, in order, while the code runs."""
    match event:
        case OutputProduced():
            print(f"{event.stream}: {event.text}", end="")
        case DisplayProduced():
            print("value:", event.bundle["text/plain"])
        case ExecutionFinished():
            print("ended:", event.status.value)
        case _:
            pass  # logs, artifacts, ...: taskweaver_ext/ces/execution/events.py lists them


with Environment(env_dir="work") as environment:
    environment.start_session("s1")
    environment.execute_code("s1", CODE, on_event=show)

    # environment.interrupt("s1"), from any thread, stops code in the same way.
    result = environment.execute_code("s1", "while True: pass", on_event=show, timeout=1)
    print("The variables are still there:", result.variables_survived)
