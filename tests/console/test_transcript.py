"""Events of a session, as a person sees them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from taskweaver_ext.approval import ApprovalRequest
from taskweaver_ext.ces.execution.results import ExecutionId, StreamName
from taskweaver_ext.console.late_output_view import MAX_REMEMBERED
from taskweaver_ext.console.rows import Painter
from taskweaver_ext.console.transcript import Transcript
from taskweaver_ext.conversation import AttachmentType, RoundId
from taskweaver_ext.events.emitter import PostEventProxy, SessionEventEmitter
from taskweaver_ext.events.types import EventScope, PostEventType, SessionEventType, TaskWeaverEvent
from taskweaver_ext.streaming.exec_panel import ExecPanel
from taskweaver_ext.streaming.exec_widget import ExecWidget

DECISION = {
    "notes": "Say hello twice",
    "tool_call": {
        "tool_id": "exec_tools.execute_code_python",
        "params": {
            "prog_name": "Greeter",
            "contract": [
                {"filepath": "a.csv", "mime": "text/csv", "description": "All of it"},
                {"filepath": "chart.png", "mime": "image/png", "description": "A picture"},
            ],
        },
    },
}


@pytest.fixture
def transcript() -> Transcript:
    """One that shows everything."""
    return Transcript(72, 20, Painter(has_color=False), is_verbose=True)


@pytest.fixture
def emitter(transcript: Transcript) -> Iterator[SessionEventEmitter]:
    """An emitter in the middle of a round, which the transcript follows."""
    emitter = SessionEventEmitter()
    emitter.start_round(RoundId("round-1"))
    with emitter.subscribe(transcript):
        yield emitter


def test_a_post_looks_as_promised_and_output_appears_when_it_happens(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    post = emitter.create_post_proxy("CodeInterpreter")
    code = 'import time; print("Starting..."); time.sleep(5); print("Done")'
    post.update_attachment("python", AttachmentType.reply_type)
    post.update_attachment(code, AttachmentType.reply_content)
    post.update_attachment("CORRECT", AttachmentType.verification)
    post.emit_execution_output("stdout", "Starting...\n")
    before_the_end = transcript.pop_rows()

    post.emit_execution_output("stdout", "Done\n")
    post.update_attachment("SUCCESS", AttachmentType.execution_status)
    post.update_message("what the planner is told")
    post.update_send_to("Planner")
    post.end()

    assert before_the_end == [
        " ╭───< CodeInterpreter >",
        " ├─► [code] " + code[:60],
        " │   " + code[60:],
        " ├─► [verification] CORRECT",
        " │   Starting...",
    ]
    assert transcript.pop_rows() == [
        " │   Done",
        " ├─► ✔ done",
        " ╰──● sending message to Planner",
    ]


def test_the_panel_shows_program_contract_code_and_timings(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    post = emitter.create_post_proxy("CodeInterpreter")
    clock = itertools.count()
    widget = ExecWidget(ExecutionId("e1"), post.emit_code_exec, lambda: float(next(clock)))
    widget.feed_decision(json.dumps(DECISION))
    widget.feed_code("for _ in range(2):\n    print('hel")
    growing = transcript.live_rows(1.0)
    widget.feed_code("lo')\n")
    widget.generation_finished()
    post.update_attachment("for _ in range(2): ...", AttachmentType.reply_content)
    widget.execution_started()
    post.emit_execution_output("stdout", "hello\nhello\n")
    widget.execution_finished()
    post.update_send_to("Planner")
    post.end()

    assert growing[0] == " │       print('hel"
    assert "writing code" in growing[1]
    rows = transcript.pop_rows()
    assert [row for row in rows if "program" in row] == [" ├─► [program] Greeter"]
    assert [row for row in rows if "objective" in row] == [" ├─► [objective] Say hello twice"]
    table = rows.index(" ├─► [contract] 2 files promised")
    assert rows[table + 1].startswith(" │   a.csv      text/csv ")
    assert rows[table + 2].startswith(" │   chart.png  image/png")
    assert rows[-8:] == [
        " ├─► [code]",
        " │   for _ in range(2):",
        " │       print('hello')",
        " ├─► [output]",
        " │   hello",
        " │   hello",
        " │   (written in 1.0 s, ran in 1.0 s)",
        " ╰──● sending message to Planner",
    ]


def test_code_that_replaces_other_code_is_shown_as_new(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    post = emitter.create_post_proxy("CodeInterpreter")
    panel = ExecPanel(ExecutionId("e1"), post.emit_code_exec, lambda: 0.0)
    panel.add_code("draft()")
    panel.restart_code()
    panel.add_code("first(")
    panel.add_code(")")
    panel.finish_generation()
    post.update_attachment("first()", AttachmentType.reply_content)
    panel.replace_code("edited()")
    post.update_attachment("edited()", AttachmentType.reply_content)

    post.end()

    assert transcript.pop_rows() == [
        " ╭───< CodeInterpreter >",
        " ├─► [code] draft()",
        " ├─► [code, changed] first()",
        " ├─► [code, changed] edited()",
        " ╰──●",
    ]


def test_fields_that_stream_in_turn_are_each_shown_once(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    post = emitter.create_post_proxy("Planner")
    plan = post.update_attachment("1. ask", AttachmentType.plan, is_end=False)
    post.update_attachment("\n2. answer", id=plan.id, is_end=False)
    step = post.update_attachment("1. a", AttachmentType.current_plan_step, is_end=False)
    post.update_attachment("sk", id=step.id, is_end=False)
    post.update_attachment("", id=plan.id, is_end=True)
    post.update_attachment("", id=step.id, is_end=True)
    status = transcript.live_rows(3.0)[-1]
    post.update_message("What do you ")
    post.message_is_end = False
    preview = transcript.live_rows(3.0)
    post.update_send_to("CodeInterpreter")
    post.end()

    assert "Planner" in status
    assert "1. ask" in status
    assert "3 s" in status
    assert preview[0] == " ├──● What do you"
    assert transcript.pop_rows() == [
        " ╭───< Planner >",
        " ├─► [plan] 1. ask",
        " │   2. answer",
        " ├─► [current_plan_step] 1. ask",
        " ├──● What do you",
        " ╰──● sending message to CodeInterpreter",
    ]


@pytest.mark.parametrize("ends_early", [True, False])
def test_a_plan_is_shown_again_only_when_it_has_changed(
    transcript: Transcript, emitter: SessionEventEmitter, ends_early: bool
) -> None:
    def plan(draft: str, final: str, step: str) -> list[str]:
        post = emitter.create_post_proxy("Planner")
        attachments = []
        for kind, text in (
            (AttachmentType.init_plan, draft),
            (AttachmentType.plan, final),
            (AttachmentType.current_plan_step, step),
        ):
            attachments.append(post.update_attachment(text[:1], kind, is_end=False))
            for character in text[1:-1]:
                post.update_attachment(character, id=attachments[-1].id, is_end=False)
            post.update_attachment(text[-1], id=attachments[-1].id, is_end=ends_early)
        for attachment in attachments:  # as planners do, once the whole reply is there
            if not ends_early:
                post.update_attachment("", id=attachment.id, is_end=True)
        post.end()
        return transcript.pop_rows()[1:-1]

    first = plan("1. look\n2. think", "1. look", "1. look")
    same = plan("1. look\n2. think", "1. look\n", "1. look")
    longer = plan("1. look\n2. think", "1. look\n2. leap", "2. leap")
    emitter.end_round(RoundId("round-1"))
    emitter.start_round(RoundId("round-2"))
    next_round = plan("1. look", "1. look", "1. look")

    assert first == [
        " ├─► [init_plan] 1. look",
        " │   2. think",
        " ├─► [plan] 1. look",
        " ├─► [current_plan_step] 1. look",
    ]
    assert same == [" ├─► [current_plan_step] 1. look"]
    assert longer == [
        " ├─► [plan] 1. look",
        " │   2. leap",
        " ├─► [current_plan_step] 2. leap",
    ]
    assert next_round == [
        " ├─► [init_plan] 1. look",
        " ├─► [current_plan_step] 1. look",
    ]


def test_an_answer_appears_block_by_block_while_it_is_written(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    post = emitter.create_post_proxy("Planner")
    post.update_send_to("User")
    post.update_message("# Found\n\nIt is **the", is_end=False)
    first = transcript.pop_rows()
    live = transcript.live_rows(0)[:-1]
    post.update_message(" tide**.\n\n- a\n- b", is_end=False)
    second = transcript.pop_rows()
    post.update_message("\n")
    post.end()

    assert first[:2] == [" ╭───< Planner >", " ╰──● sending message to User"]
    assert first[2:] == ["", "Found", "═════"]
    assert live == ["It is **the"]
    assert second == ["", "It is *the tide*."]
    assert transcript.pop_rows() == ["", "• a", "• b", ""]


def test_an_answer_that_fails_midway_stays_as_it_came(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    post = emitter.create_post_proxy("Planner")
    post.update_send_to("User")
    post.update_message("One **half", is_end=False)
    post.error("The model is gone.")
    post.end()

    rows = transcript.pop_rows()
    assert rows.index("One **half") < rows.index(" ├─► [error] The model is gone.")


def test_an_answer_is_drawn_as_markdown(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    post = emitter.create_post_proxy("Planner")
    post.update_message("**Done**, see\n\n* one\n* two [link](http://x/)\x1b[2J")
    post.update_send_to("User")
    post.end()

    assert [row.rstrip() for row in transcript.pop_rows()] == [
        " ╭───< Planner >",
        " ╰──● sending message to User",
        "",
        "*Done*, see",
        "",
        "• one",
        "• two link (http://x/)",
        "",
    ]


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ("cd /\nls", []),
        ("cd /\nrm x", [" │   cd /", " │   rm x"]),
    ],
    ids=["seen above", "not seen yet"],
)
def test_code_that_needs_approval_is_seen_in_full_and_once(
    transcript: Transcript, emitter: SessionEventEmitter, wanted: str, shown: list[str]
) -> None:
    post = emitter.create_post_proxy("CodeInterpreter")
    post.update_attachment("bash", AttachmentType.reply_type)
    post.update_attachment("cd /\nls", AttachmentType.reply_content, is_end=False)

    request = ApprovalRequest(
        question_id="q", language="bash", code=wanted, reasons=("It is bash code.",)
    )
    transcript.show_approval(request)

    assert transcript.pop_rows() == [
        " ╭───< CodeInterpreter >",
        " ├─► [code bash]",
        " │   cd /",
        " │   ls",
        " ├─► [approval] This runs only if you allow it. It is bash code.",
        *shown,
    ]


def test_what_the_user_runs_needs_no_introduction(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    post = emitter.create_post_proxy("User")
    post.update_attachment("python", AttachmentType.reply_type)
    post.update_attachment("1 + 1", AttachmentType.reply_content)
    post.emit_execution_output("stdout", "2\n")
    post.update_attachment("SUCCESS", AttachmentType.execution_status)
    post.end()

    assert transcript.pop_rows() == [" │   2", " ╰──● ✔ done"]


def test_what_the_user_says_is_not_repeated(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    post = emitter.create_post_proxy("User")
    post.update_message("hello")
    post.update_send_to("Planner")
    post.end()

    assert transcript.pop_rows() == []


def test_long_lines_of_ours_may_be_indented(transcript: Transcript) -> None:
    transcript.say("name  " + "value " * 12, indent=6)

    assert transcript.pop_rows() == [
        "name  " + "value " * 10 + "value",
        "      value ",
    ]


def test_a_failed_round_closes_the_frame_and_says_why_once(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    post = emitter.create_post_proxy("Planner")
    post.update_attachment("half a thou", AttachmentType.thought, is_end=False)
    emitter.emit_error("the network is down")

    assert transcript.pop_rows() == [
        " ╭───< Planner >",
        " ├─► [thought] half a thou",
        " ╰──●",
    ]
    assert transcript.pop_failure() == "the network is down"
    assert transcript.pop_failure() == ""


def test_text_of_models_and_roles_cannot_drive_the_terminal(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    evil = "\x1b]0;x\x07\x1b[2J\x9b1A"
    post = emitter.create_post_proxy(f"Role{evil}")
    post.update_status(f"busy{evil}")
    post.update_attachment(f"t{evil}", AttachmentType.thought)
    post.update_attachment(f"s{evil}", AttachmentType.current_plan_step)
    live = transcript.live_rows(1)
    post.update_message(f"m{evil}")
    post.update_send_to(f"To{evil}")
    post.end()

    shown = "\n".join([*transcript.pop_rows(), *live])
    assert [part for part in ("Role", "busy", "t", "s", "m", "To") if part not in shown] == []
    assert set("\x1b\x9b\x07") & set(shown) == set()


def write_late(
    emitter: SessionEventEmitter, post: PostEventProxy, stream: StreamName, text: str
) -> None:
    execution_id = ExecutionId(post.post.id)
    emitter.emit_session_event(
        SessionEventType.session_late_output,
        text,
        {"stream": stream, "text": text, "execution_id": execution_id},
    )


def test_what_code_writes_after_its_end_has_a_frame_of_its_own(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    first = emitter.create_post_proxy("User")
    first.update_attachment("start_thread()\nmore()", AttachmentType.reply_content)
    first.end()
    second = emitter.create_post_proxy("User")

    second.emit_execution_output("stdout", "own\n")
    write_late(emitter, first, "stdout", "late 1\nla")
    second.emit_execution_output("stdout", "own again\n")
    write_late(emitter, first, "stderr", "late 2\n")

    assert transcript.pop_rows() == [
        " │   own",
        " ╭╌╌╌< late output of start_thread() >",
        " ┊   late 1",
        " ┊   la",
        " │   own again",
        " ┊ ! late 2",
    ]
    second.end()
    transcript.pop_rows()
    transcript.say("something else")
    write_late(emitter, second, "stdout", "later\n")
    assert transcript.pop_rows() == [
        "something else",
        " ╭╌╌╌< late output of User >",
        " ┊   later",
    ]


def test_a_late_progress_bar_is_shown_once_it_is_complete(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    post = emitter.create_post_proxy("User")
    post.end()

    for percent in range(100):
        write_late(emitter, post, "stderr", f"\r{percent} %")
    assert transcript.pop_rows() == []
    write_late(emitter, post, "stderr", "\r100 %\n")

    assert transcript.pop_rows()[1:] == [" ┊ ! 100 %"]


def test_of_a_late_flood_the_beginning_is_shown(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    post = emitter.create_post_proxy("User")
    tell_number(post, 3)
    post.end()

    for number in range(1000):
        write_late(emitter, post, "stdout", f"{number}\n")
    rows = transcript.pop_rows()

    assert rows[:2] == [" ╭╌╌╌< late output of [3] User >", " ┊   0"]
    assert rows[20:] == [" ┊   19", " ┊   ⋯ more lines come: /expand 3"]


def test_only_so_many_ended_posts_are_known_by_what_they_ran(
    transcript: Transcript, emitter: SessionEventEmitter
) -> None:
    first = emitter.create_post_proxy("User")
    first.update_attachment("forgotten()", AttachmentType.reply_content)
    first.end()
    for _ in range(MAX_REMEMBERED):
        emitter.create_post_proxy("User").end()

    write_late(emitter, first, "stdout", "late\n")

    assert transcript.pop_rows() == [f" ╭╌╌╌< late output of {first.post.id} >", " ┊   late"]


@pytest.fixture
def brief(emitter: SessionEventEmitter) -> Iterator[Transcript]:
    """One that shows what a person needs, and follows the same round."""
    brief = Transcript(72, 20, Painter(has_color=False))
    with emitter.subscribe(brief):
        yield brief


def tell_number(post: PostEventProxy, number: int, *, part: int = 0, code: str = "") -> None:
    post.emitter.emit(
        TaskWeaverEvent(
            EventScope.post,
            PostEventType.post_code_block,
            post.round_id,
            post.post.id,
            code,
            {"number": number, "language": "python", "by": "agent", "part": part},
        )
    )


def write_plan(emitter: SessionEventEmitter, plan: str, message: str) -> None:
    post = emitter.create_post_proxy("Planner")
    post.update_attachment("because", AttachmentType.plan_reasoning)
    post.update_attachment(plan, AttachmentType.init_plan)
    post.update_attachment(plan, AttachmentType.plan)
    post.update_attachment("1. do", AttachmentType.current_plan_step)
    post.update_attachment("InProcess", AttachmentType.stop)
    post.update_send_to("CodeInterpreter")
    post.update_message(message)
    post.end()


def run_code(emitter: SessionEventEmitter, code: str, output: str, status: str = "SUCCESS") -> None:
    post = emitter.create_post_proxy("CodeInterpreter")
    post.update_attachment("I will", AttachmentType.thought)
    tell_number(post, 2)
    post.update_attachment("python", AttachmentType.reply_type)
    post.update_attachment(code, AttachmentType.reply_content)
    post.update_attachment("CORRECT", AttachmentType.verification)
    if output:
        post.emit_execution_output("stdout", output)
    post.update_attachment(status, AttachmentType.execution_status)
    post.update_attachment("what came of it", AttachmentType.execution_result)
    post.update_send_to("Planner")
    post.update_message("The planner is told at length.")
    post.end()


def test_an_answer_in_one_step_is_code_output_and_answer(
    brief: Transcript, emitter: SessionEventEmitter
) -> None:
    write_plan(emitter, "1. compute\n2. report to the User", "Compute it.\nWith care.")
    run_code(emitter, "print(6 * 7)", "42\n")
    last = emitter.create_post_proxy("Planner")
    last.update_attachment("1. compute", AttachmentType.plan)
    last.update_send_to("User")
    last.update_message("It is 42.")
    last.end()

    assert brief.pop_rows() == [
        " ╶─ Planner → CodeInterpreter: Compute it.",
        " ╭─► [2] print(6 * 7)",
        " │   42",
        " ╰──● [2] ✔ done",
        "",
        "It is 42.",
        "",
    ]


def test_code_of_several_lines_is_set_apart_from_its_output(
    brief: Transcript, emitter: SessionEventEmitter
) -> None:
    run_code(emitter, "x = 1\nprint(x)", "1\n")
    run_code(emitter, "x = 2\ny = 3", "")

    assert brief.pop_rows() == [
        " ╭─► [2]",
        " │   x = 1",
        " │   print(x)",
        " ├─► [output]",
        " │   1",
        " ╰──● [2] ✔ done",
        " ╭─► [2]",
        " │   x = 2",
        " │   y = 3",
        " ╰──● [2] ✔ done",
    ]


def test_a_plan_of_several_steps_is_shown_once(
    brief: Transcript, emitter: SessionEventEmitter
) -> None:
    steps = "1. load\n2. plot\n3. report"
    write_plan(emitter, steps, "Load it.")
    write_plan(emitter, steps, "Plot it.")

    assert brief.pop_rows() == [
        " ╭─► [plan] 1. load",
        " │   2. plot",
        " │   3. report",
        " ╰──●",
        " ╶─ Planner → CodeInterpreter: Load it.",
        " ╶─ Planner → CodeInterpreter: Plot it.",
    ]


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("SUCCESS", "✔ done"),
        ("FAILURE", "✖ failed"),
        ("TIMEOUT", "✖ timed out"),
        ("DIED", "✖ kernel died"),
        ("CANCELLED", "■ cancelled"),
        ("REFUSED", "■ refused"),
        ("NONE", "○ not run"),
    ],
)
def test_how_code_ended_is_seen_at_a_glance(
    brief: Transcript, emitter: SessionEventEmitter, told: str, shown: str
) -> None:
    run_code(emitter, "go()", "out\n", told)

    assert brief.pop_rows()[-1] == f" ╰──● [2] {shown}"


@pytest.mark.parametrize(("role", "count"), [("User", 20), ("CodeInterpreter", 10)])
def test_more_of_ones_own_output_stays_than_of_the_agents(
    brief: Transcript, emitter: SessionEventEmitter, role: str, count: int
) -> None:
    post = emitter.create_post_proxy(role)
    tell_number(post, 5)
    post.emit_execution_output("stdout", "".join(f"{n}\n" for n in range(100)))
    post.update_attachment("SUCCESS", AttachmentType.execution_status)
    post.update_send_to("Planner")
    post.end()

    rows = brief.pop_rows()
    assert f" │   ⋯ {100 - count} more lines: /expand 5" in rows
    assert sum(row.startswith(" │   ") for row in rows) == count + 1


def test_code_that_an_answer_proposes_is_offered_below_it(
    brief: Transcript, emitter: SessionEventEmitter
) -> None:
    post = emitter.create_post_proxy("Planner")
    post.update_send_to("User")
    post.update_message("Try it.")
    post.end()
    tell_number(post, 4, part=1, code="x = 1\ny = 2")

    assert brief.pop_rows()[-1] == " [4] ○ not run: /run 4, /edit 4  python: x = 1"


def test_numbers_of_another_session_are_not_shown(
    brief: Transcript, emitter: SessionEventEmitter
) -> None:
    brief.has_numbers = False
    run_code(emitter, "print(1)", "1\n")

    assert brief.pop_rows() == [" ╭─► [code] print(1)", " │   1", " ╰──● ✔ done"]
