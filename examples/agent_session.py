"""Follow the agent at work: code while it is written, its output while it runs.

The model is scripted, so that this runs without a key. Without `model=`, the settings of the
project say which model answers.

Prints:
    <Planner>
    Count to two.
    <CodeInterpreter>
    for number in range(3): print("counting", number)
    counting 0
    counting 1
    counting 2
    <Planner>
    I have counted to two.
    The round has finished.
"""

import json
from tempfile import TemporaryDirectory

from taskweaver_ext import (
    AttachmentType,
    PostEventType,
    ScriptedModel,
    SessionEventHandler,
    TaskWeaverApp,
    TaskWeaverEvent,
)


class Follower(SessionEventHandler):
    """Show a few of the events; taskweaver_ext/events/types.py lists them all."""

    role = ""

    def handle(self, event: TaskWeaverEvent) -> None:
        """Called for each event in order; a handler that raises does not disturb the others."""
        extra = event.extra
        if event.t is PostEventType.post_start and "role" in extra:
            self.role = extra["role"]
            print(f"<{self.role}>")
        elif event.t is PostEventType.post_execution_output:
            print(event.msg, end="")
        elif event.t is PostEventType.post_message_update and self.role == "Planner":
            self.show_piece(event.msg, "is_end" in extra and extra["is_end"])
        elif "type" in extra and extra["type"] is AttachmentType.reply_content:
            self.show_piece(event.msg, extra["is_end"])

    def show_piece(self, text: str, is_end: bool) -> None:
        """Texts of a model come in pieces."""
        print(text, end="\n" if is_end else "")


def plan(message: str, to: str, stop: str) -> str:
    """Reply as a planner."""
    fields = {"plan": "1. count", "current_plan_step": "1. count"}
    return json.dumps({"response": {**fields, "message": message, "send_to": to, "stop": stop}})


def code(source: str) -> str:
    """Reply as a code interpreter."""
    return json.dumps({"response": {"reply_type": "python", "reply_content": source}})


MODEL = ScriptedModel(
    [
        plan("Count to two.", "CodeInterpreter", "InProcess"),
        code('for number in range(3): print("counting", number)'),
        plan("I have counted to two.", "User", "Completed"),
    ]
)

# A project folder is what `taskweaver-ext init` makes; an empty one will do, too.
with TemporaryDirectory() as project, TaskWeaverApp(project, model=MODEL) as app:
    session = app.get_session()
    # session.interrupt(), from any thread, stops the model or the code, whichever is at work.
    chat_round = session.send_message("Please count to two.", event_handler=Follower())
    print(f"The round has {chat_round.state}.")
