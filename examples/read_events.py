"""Follow a session from another thread, at your own pace, and answer what its code asks.

A frontend of this kind is never called: it asks for the events after the last one it knows.
Each event can be a line of JSON, which `event_from_json` turns back into the same event.

Prints:
    asked: Your name?
    wrote: Hello Ada
    value: 3
    status: success
"""

import json
import tempfile

from taskweaver_ext import PostEventType, SessionEventType, TaskWeaverApp, event_to_json

CODE = """
name = input("Your name?")
print("Hello", name)
len(name)
"""


def main() -> None:
    """Run code that asks, answer it, and show what the session says."""
    with tempfile.TemporaryDirectory() as folder, TaskWeaverApp(folder) as app:
        session = app.get_session()
        session.questions.accepts_answers = True  # this frontend reads questions and answers them
        submitted = session.submit_code("python", CODE)  # returns at once; `cancel` stops it
        seen = 0
        while not (submitted.is_done and seen == session.emitter.last_seq):
            session.emitter.wait(seen, seconds=0.5)
            for event in session.emitter.read(seen):
                seen = event.seq
                extra = event.extra
                if event.t is SessionEventType.session_question and "question_id" in extra:
                    print("asked:", event.msg)
                    session.answer(extra["question_id"], "answered", "Ada")
                elif event.t is PostEventType.post_execution_output:
                    print("wrote:", event.msg, end="")
                elif event.t is PostEventType.post_execution_event:
                    said = json.loads(json.dumps(event_to_json(event)))["extra"]["event"]
                    if said["event"] == "display":
                        print("value:", said["bundle"]["text/plain"])
        print("status:", submitted.wait().status.value)


if __name__ == "__main__":
    main()
