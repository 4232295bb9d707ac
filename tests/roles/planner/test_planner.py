"""The planner's replies in channels; those in JSON are tested with whole sessions."""

from __future__ import annotations

import json
from pathlib import Path

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.conversation import AttachmentType
from taskweaver_ext.llm.scripted import ScriptedModel, ScriptedReply
from tests.support.conversations import Listener, answer, attached, plan


def in_channels(reply: str, thinking: str) -> str:
    fields = json.loads(reply)["response"]
    del fields["plan_reasoning"]
    decision = json.dumps({"response": fields})
    return (
        f"<channel:thinking>{thinking}</channel:thinking>\n"
        f"<channel:ReactDecisionOutV2>{decision}</channel:ReactDecisionOutV2>"
    )


def test_a_planner_plans_in_channels(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            in_channels(plan("say it", to="Echo"), "Echo can say it."),
            in_channels(answer("It was said."), "That is all."),
        ]
    )
    listener = Listener()
    settings = {"session.roles": ["planner", "echo"]}
    with TaskWeaverApp(tmp_path, settings, model=model, reply_form="channels") as app:
        chat_round = app.get_session().send_message("hi", listener)

    planned, answered = chat_round.post_list[1], chat_round.post_list[-1]
    assert attached(planned, AttachmentType.plan_reasoning) == "Echo can say it."
    assert attached(planned, AttachmentType.plan) == "1. do it\n2. report"
    assert answered.message == "It was said."
    thoughts = [
        event.msg
        for event in listener.events
        if "type" in event.extra and event.extra["type"] is AttachmentType.plan_reasoning
    ]
    assert len(thoughts) > 3
    assert "two channels" in model.requests[0][0].content
    assert "<channel:thinking>Echo can say it.</channel:thinking>" in model.requests[1][-2].content


def test_what_a_model_thinks_before_it_replies_is_shown_and_not_repeated(tmp_path: Path) -> None:
    model = ScriptedModel(
        [ScriptedReply(text=answer("one"), thinking="hmm, let me see"), answer("two")]
    )
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        first = session.send_message("hi")
        session.send_message("hi again")

    assert attached(first.post_list[-1], AttachmentType.thought) == "hmm, let me see"
    assert "hmm" not in str(model.requests[1])


def test_names_and_stop_states_are_read_generously(tmp_path: Path) -> None:
    odd = answer("fine").replace('"User"', '" user "').replace('"Completed"', '"completed"')
    without_reader = answer("fine").replace('"send_to": "User", ', "")
    model = ScriptedModel([odd, without_reader])
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        rounds = [session.send_message("hi") for _ in range(2)]

    for chat_round in rounds:
        last = chat_round.post_list[-1]
        assert last.send_to == "User"
        assert attached(last, AttachmentType.stop) == "Completed"


def test_what_a_model_has_read_already_stays_the_same(tmp_path: Path) -> None:
    model = ScriptedModel([plan("go", to="Echo"), answer("fine"), answer("fine")])
    with TaskWeaverApp(tmp_path, {"session.roles": ["planner", "echo"]}, model=model) as app:
        session = app.get_session()
        session.send_message("one")
        session.send_message("two")

    first, second, third = model.requests
    assert second[: len(first)] == first
    assert third[: len(second)] == second


def test_work_is_not_handed_out_without_a_plan(tmp_path: Path) -> None:
    fields = {"send_to": "Echo", "message": "say it", "stop": "InProcess"}
    model = ScriptedModel(
        [json.dumps({"response": fields}), plan("say it", to="Echo"), answer("done")]
    )
    with TaskWeaverApp(tmp_path, {"session.roles": ["planner", "echo"]}, model=model) as app:
        chat_round = app.get_session().send_message("hi")

    assert chat_round.state == "finished"
    assert "The reply lacks plan." in model.requests[1][-1].content
