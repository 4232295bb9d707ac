"""The code interpreter: channels, languages, approval, plugins, contracts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.approval import Approval, ApprovalAnswer, ApprovalRequest
from taskweaver_ext.ces.execution.events import LogRecorded
from taskweaver_ext.config.settings import ReplyForm
from taskweaver_ext.conversation import AttachmentType, Round
from taskweaver_ext.errors import SessionError
from taskweaver_ext.llm.scripted import ScriptedModel, ScriptEntry
from tests.support.conversations import Background, Listener, answer, attached, code, plan
from tests.support.executions import wait_until

DECISION: dict[str, Any] = {
    "action": "call_tool",
    "notes": "Write a report",
    "tool_call": {
        "tool_id": "exec_tools.execute_code_python",
        "params": {
            "prog_name": "reporter",
            "contract": [{"filepath": "report.txt", "description": "the report"}],
        },
    },
}


def channels(source: str, decision: object = DECISION, thinking: str = "I write it.") -> str:
    return (
        f"<channel:thinking>{thinking}</channel:thinking>\n"
        f"<channel:ReactDecisionOutV2>{json.dumps(decision)}</channel:ReactDecisionOutV2>\n"
        f"<channel:code>{source}</channel:code>"
    )


def converse(
    project: Path,
    script: list[ScriptEntry],
    *,
    listener: Listener | None = None,
    approval: Approval | None = None,
    reply_form: ReplyForm = "json",
    **settings: object,
) -> tuple[Round, ScriptedModel]:
    """Play a script in a new project, or in the one that is there."""
    project.mkdir(exist_ok=True)
    model = ScriptedModel(script)
    named = {name.replace("__", "."): value for name, value in settings.items()}
    with TaskWeaverApp(project, named, model=model, reply_form=reply_form) as app:
        session = app.get_session(approval=approval)
        return session.send_message("do it", listener), model


def told(model: ScriptedModel, index: int) -> str:
    return "\n".join(message.content for message in model.requests[index])


def panel(listener: Listener, kind: str) -> str:
    return "".join(
        event.msg
        for event in listener.events
        if "sub_type" in event.extra and event.extra["sub_type"] == f"code_exec.{kind}"
    )


def test_a_reply_in_channels_is_shown_and_run(tmp_path: Path) -> None:
    source = "open('report.txt', 'w').write('all is well')\nprint('written')"
    listener = Listener()

    chat_round, model = converse(
        tmp_path,
        [plan("Write."), channels(f"\n```python\n{source}\n```\n"), answer("Done.")],
        listener=listener,
        reply_form="channels",
    )

    post = chat_round.post_list[2]
    assert chat_round.state == "finished"
    assert attached(post, AttachmentType.thought) == "I write it."
    assert attached(post, AttachmentType.reply_content) == source
    assert attached(post, AttachmentType.artifact_paths).endswith("cwd/report.txt")
    assert panel(listener, "code") == source
    assert panel(listener, "program.name") == "reporter"
    assert panel(listener, "objective") == "Write a report"
    assert "report.txt" in panel(listener, "contract")
    assert listener.statuses_of_panel() == ["gen", "exec", "done"]
    assert listener.output() == "written\n"
    assert "<channel:thinking>" in told(model, 1)
    assert "Promised file, made: report.txt" in told(model, 2)


def test_a_promised_file_that_is_missing_is_a_failure_to_repair(tmp_path: Path) -> None:
    listener = Listener()

    chat_round, model = converse(
        tmp_path,
        [
            plan("Write."),
            channels("print('forgotten')"),
            channels("print(open('report.txt', 'w').write('x'))"),
            answer("Done."),
        ],
        listener=listener,
        reply_form="channels",
    )

    assert chat_round.state == "finished"
    assert listener.statuses_of_panel() == ["gen", "exec", "error", "gen", "exec", "done"]
    assert "report.txt: was not made" in told(model, 2)
    assert "<channel:code>print('forgotten')</channel:code>" in told(model, 2)


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        ("I have no idea.", "no channels"),
        ("", "empty"),
        (channels("print(1)", {"tool_call": {"tool_id": "web.search"}}), "must name one of"),
        (
            channels(
                "print(1)",
                {
                    **DECISION,
                    "tool_call": {"tool_id": "exec_tools.execute_code_python", "params": {}},
                },
            ),
            "missing_artifacts",
        ),
        (channels(""), "missing_code"),
    ],
)
def test_channels_that_cannot_be_used_are_asked_for_again(
    tmp_path: Path, reply: str, complaint: str
) -> None:
    good = channels("open('report.txt', 'w').write('x')")

    chat_round, model = converse(
        tmp_path, [plan("Write."), reply, good, answer("Done.")], reply_form="channels"
    )

    assert chat_round.state == "finished"
    assert complaint in told(model, 2)


def test_an_answer_in_words_needs_no_code(tmp_path: Path) -> None:
    decision = {"action": "complete", "final_answer": "There is nothing to do."}
    reply = f"<channel:ReactDecisionOutV2>{json.dumps(decision)}</channel:ReactDecisionOutV2>"
    listener = Listener()

    in_channels, _ = converse(
        tmp_path, [plan("x"), reply, answer("ok")], reply_form="channels", listener=listener
    )
    in_json, _ = converse(
        tmp_path, [plan("x"), code("There is nothing to do.", "text"), answer("ok")]
    )

    assert in_channels.post_list[2].message == "There is nothing to do."
    assert in_json.post_list[2].message == "There is nothing to do."
    assert listener.statuses_of_panel() == []


def test_leftovers_of_the_form_are_refused(tmp_path: Path) -> None:
    listener = Listener()

    _, model = converse(
        tmp_path,
        [
            plan("x"),
            code("print(1)\n</channel:code>"),
            code("```python\nprint('clean')\n```"),
            answer("ok"),
        ],
        listener=listener,
    )

    assert "Line 2 of the code is not code" in told(model, 2)
    assert listener.output() == "clean\n"


def test_shell_code_asks_first_and_runs_in_the_shell(tmp_path: Path) -> None:
    requests: list[ApprovalRequest] = []

    def agree(request: ApprovalRequest) -> ApprovalAnswer:
        requests.append(request)
        return ApprovalAnswer(True, "echo edited by hand")

    listener = Listener()
    chat_round, _ = converse(
        tmp_path,
        [plan("x"), code("echo as written", "bash"), answer("ok")],
        listener=listener,
        approval=Approval(ask=agree),
    )

    assert [request.code for request in requests] == ["echo as written"]
    assert listener.output() == "edited by hand\n"
    assert attached(chat_round.post_list[2], AttachmentType.reply_type) == "bash"
    assert attached(chat_round.post_list[2], AttachmentType.verification) == "NONE"


@pytest.mark.parametrize("reply_form", ["json", "channels"])
def test_edited_code_is_the_code_that_is_shown_kept_told_and_run(
    tmp_path: Path, reply_form: ReplyForm
) -> None:
    edited = "print('edited')"
    approval = Approval(scope="all", ask=lambda request: ApprovalAnswer(True, edited))
    listener = Listener()
    decision = {"tool_call": {**DECISION["tool_call"], "params": {"contract": []}}}
    written = "print('as written')"
    reply = code(written) if reply_form == "json" else channels(written, decision)

    chat_round, model = converse(
        tmp_path,
        [plan("x"), reply, plan("x"), reply, answer("ok")],
        listener=listener,
        approval=approval,
        reply_form=reply_form,
    )

    post = chat_round.post_list[2]
    assert [one.content for one in post.get_attachment(AttachmentType.reply_content)] == [edited]
    assert attached(post, AttachmentType.verification) == "CORRECT"
    assert listener.code_of_panel() == edited
    assert listener.statuses_of_panel() == ["gen", "exec", "done"] * 2
    assert listener.output() == "edited\n" * 2
    history = told(model, 3)
    assert edited in history
    assert "as written" not in history
    assert "The user has edited the code." in history


def test_edited_code_that_must_not_run_is_asked_about_again(tmp_path: Path) -> None:
    requests: list[ApprovalRequest] = []
    edits = ["print(eval('1'))", "print(", "print('third')"]

    def edit(request: ApprovalRequest) -> ApprovalAnswer:
        requests.append(request)
        return ApprovalAnswer(True, edits[len(requests) - 1])

    listener = Listener()
    converse(
        tmp_path,
        [plan("x"), code("print('as written')"), answer("ok")],
        listener=listener,
        approval=Approval(scope="all", ask=edit),
    )

    assert [request.code for request in requests] == ["print('as written')", *edits[:2]]
    assert "'eval' is not allowed" in requests[1].reasons[0]
    assert "SyntaxError" in requests[2].reasons[0]
    assert listener.code_of_panel() == edits[2]
    assert listener.output() == "third\n"
    assert listener.statuses_of_panel() == ["gen", "exec", "done"]


@pytest.mark.parametrize("second", [ApprovalAnswer(True), ApprovalAnswer(True, "eval('1')")])
def test_edited_code_that_must_not_run_does_not_run(tmp_path: Path, second: ApprovalAnswer) -> None:
    answers = [ApprovalAnswer(True, "eval('1')")]
    approval = Approval(scope="all", ask=lambda request: answers.pop() if answers else second)
    listener = Listener()

    chat_round, model = converse(
        tmp_path,
        [plan("x"), code("print('as written')"), answer("not done")],
        listener=listener,
        approval=approval,
    )

    post = chat_round.post_list[2]
    assert listener.output() == ""
    assert listener.statuses_of_panel() == ["gen", "error"]
    written = "print('as written')"
    assert attached(post, AttachmentType.reply_content) == listener.code_of_panel() == written
    assert attached(post, AttachmentType.execution_status) == "REFUSED"
    assert attached(post, AttachmentType.verification) == "CORRECT", "it is not the model's fault"
    assert "eval" not in told(model, 2)
    assert "The user edited the code until it could not run." in told(model, 2)


def test_the_panel_ends_when_the_round_does(tmp_path: Path) -> None:
    def stop(request: ApprovalRequest) -> ApprovalAnswer:
        raise SessionError("The session ends.")

    listener = Listener()
    converse(
        tmp_path,
        [plan("x"), code("echo x", "bash")],
        listener=listener,
        approval=Approval(ask=stop),
    )

    assert listener.errors() == ["The session ends."]
    assert listener.statuses_of_panel() == ["gen", "error"]


def test_a_projects_prefix_is_part_of_the_code_and_may_do_what_models_may_not(
    tmp_path: Path,
) -> None:
    prefix = "import subprocess as sp\nunit = eval(\"'kg'\")"
    listener = Listener()

    chat_round, model = converse(
        tmp_path,
        [
            plan("x"),
            code("print(unit)\n1 / 0"),
            code("sp.run('true')"),
            code(f"{prefix}\nprint('repeated', unit)"),
            answer("ok"),
        ],
        listener=listener,
        code_interpreter__code_prefix=prefix,
    )

    failed, refused, repeated = chat_round.post_list[2:5]
    assert attached(failed, AttachmentType.reply_content) == f"{prefix}\nprint(unit)\n1 / 0"
    assert "line 4" in attached(failed, AttachmentType.execution_result)
    assert json.dumps(f"{prefix}\nprint(unit)\n1 / 0") in told(model, 2)
    assert "nobody can be asked" in refused.message
    assert attached(repeated, AttachmentType.reply_content) == listener.code_of_panel()
    assert listener.code_of_panel() == f"{prefix}\nprint('repeated', unit)"
    assert listener.output() == "kg\nrepeated kg\n"


def test_a_reply_that_is_only_a_block_of_code_has_a_panel(tmp_path: Path) -> None:
    listener = Listener()

    converse(
        tmp_path, [plan("x"), "```python\nprint('block')\n```", answer("ok")], listener=listener
    )

    assert listener.code_of_panel() == "print('block')"
    assert listener.statuses_of_panel() == ["gen", "exec", "done"]
    assert listener.output() == "block\n"


def test_a_person_who_says_no_is_final(tmp_path: Path) -> None:
    approval = Approval(ask=lambda request: ApprovalAnswer(False, reason="Too risky."))

    chat_round, model = converse(
        tmp_path, [plan("x"), code("rm -rf x", "sh"), answer("not done")], approval=approval
    )

    refused = chat_round.post_list[2]
    assert refused.send_to == "Planner"
    assert "The user refused to run this code. The user said: Too risky." in told(model, 2)
    assert attached(refused, AttachmentType.execution_status) == "REFUSED"
    assert attached(refused, AttachmentType.verification) == "NONE", "shell is not verified"
    assert not refused.get_attachment(AttachmentType.code_error)


@pytest.mark.parametrize(
    "shell", [code("echo x", "bash"), code("!echo x"), code("import os\nos.system('echo x')")]
)
def test_without_a_person_to_ask_another_way_is_found(tmp_path: Path, shell: str) -> None:
    listener = Listener()

    chat_round, model = converse(
        tmp_path,
        [plan("x"), shell, code("print('in python')"), answer("ok")],
        listener=listener,
    )

    assert chat_round.state == "finished"
    assert "nobody can be asked" in told(model, 2)
    assert listener.output() == "in python\n"


def test_an_unknown_language_is_asked_for_again(tmp_path: Path) -> None:
    _, model = converse(
        tmp_path, [plan("x"), code("10 PRINT", "basic"), code("print(1)"), answer("ok")]
    )

    assert "reply_type must be one of" in told(model, 2)


def test_verification_can_be_turned_off(tmp_path: Path) -> None:
    listener = Listener()

    converse(
        tmp_path,
        [plan("x"), code("print(eval('1 + 1'))"), answer("ok")],
        listener=listener,
        code_interpreter__code_verification_on=False,
    )

    assert listener.output() == "2\n"


def test_plugins_are_listed_loaded_and_heard_live(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "steps.yaml").write_text(
        "name: steps\ndescription: Does it in steps.\n"
        "parameters: [{name: gate, type: str, required: true}]\nconfigurations: {unit: kg}\n"
    )
    (folder / "steps.py").write_text(
        "import pathlib, time\n"
        "from taskweaver.plugin import Plugin, register_plugin\n"
        "@register_plugin\n"
        "class Steps(Plugin):\n"
        "    def __call__(self, gate):\n"
        "        print('begun', end='')\n"
        "        self.ctx.log('info', 'steps', 'half way')\n"
        "        limit = time.monotonic() + 20\n"
        "        while not pathlib.Path(gate).exists() and time.monotonic() < limit:\n"
        "            time.sleep(0.01)\n"
        "        assert pathlib.Path(gate).exists()\n"
        "        self.log('error', 'too heavy')\n"
        "        return '5' + self.config['unit']\n"
    )
    (folder / "broken.yaml").write_text("name: broken\ndescription: Does not load.\n")
    (folder / "broken.py").write_text("1 / 0")
    (folder / "lonely.yaml").write_text("name: lonely\ndescription: Has no source.\n")
    listener = Listener(lambda event: gate.touch() if "half way" in str(event.extra) else None)

    chat_round, model = converse(
        tmp_path, [plan("x"), code(f"steps({str(gate)!r})"), answer("ok")], listener=listener
    )

    assert chat_round.state == "finished"
    assert "def steps(gate: str) -> None" in told(model, 0)
    assert "def steps(gate: str) -> None" in told(model, 1)
    assert "broken" not in told(model, 1)
    assert listener.output() == "begun"
    assert listener.values() == ["'5kg'"]
    logged = [one for one in listener.executions() if isinstance(one, LogRecorded)]
    assert [(one.level, one.tag, one.message) for one in logged] == [
        (
            "warning",
            "plugins",
            f"One is left out. {folder / 'lonely.yaml'}: there is no lonely.py beside it.",
        ),
        ("warning", "plugins", "One is left out. broken: ZeroDivisionError: division by zero"),
        ("info", "steps", "half way"),
        ("error", "Plugin-steps", "too heavy"),
    ]


def test_an_interrupt_stops_a_plugin_that_never_ends_to_load(tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    gate = tmp_path / "gate"
    for name in ("first", "second"):
        (folder / f"{name}.yaml").write_text(f"name: {name}\ndescription: Takes its time.\n")
        (folder / f"{name}.py").write_text(
            "import pathlib, time\n"
            f"while {name == 'second'} and not pathlib.Path({str(gate)!r}).exists():\n"
            f"    pathlib.Path({str(gate)!r} + '.loading').touch()\n"
            "    time.sleep(0.01)\n"
            "from taskweaver.plugin import Plugin, register_plugin\n"
            "@register_plugin\n"
            "class Slow(Plugin):\n"
            "    def __call__(self):\n"
            f"        return {name!r}\n"
        )
    listener = Listener()
    model = ScriptedModel([plan("x"), plan("x"), code("print(first(), second())"), answer("ok")])
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        running = Background(lambda: session.send_message("go", listener))
        wait_until(Path(f"{gate}.loading").exists)
        assert session.interrupt()
        stopped = running.result()
        gate.touch()
        finished = session.send_message("go", listener)

    assert (getattr(stopped, "state", ""), finished.state) == ("cancelled", "finished")
    assert listener.errors() == []
    assert listener.output() == "first second\n"


def test_what_the_model_is_given_of_an_output_has_a_budget(tmp_path: Path) -> None:
    source = (
        "for i in range(5000):\n    print('line', i)\n"
        "for i in range(100):\n    print(f'\\r{i}%', end='')\nprint('\\r100% done')"
    )

    chat_round, model = converse(tmp_path, [plan("x"), code(source), answer("ok")])

    result = attached(chat_round.post_list[2], AttachmentType.execution_result)
    assert len(result) < 7000
    assert "line 0\n" in result
    assert "100% done" in result
    assert "99%" not in result
    assert "left out" in result
    assert "left out" in told(model, 2)


def test_what_a_model_has_read_already_stays_the_same(tmp_path: Path) -> None:
    model = ScriptedModel([code("open('made.txt', 'w')\n1 / 0"), code("1 + 1"), code("2 + 2")])
    with TaskWeaverApp(tmp_path, {"session.roles": ["code_interpreter"]}, model=model) as app:
        session = app.get_session()
        session.send_message("one")
        session.send_message("two")

    first, second, third = model.requests
    assert second[: len(first) - 1] == first[:-1]
    assert third[: len(second) - 1] == second[:-1]
    assert first[-1].content.endswith(" Files in the working directory: (none).)")
    assert second[-1].content.endswith(" Files in the working directory: made.txt.)")


def test_cells_share_variables_and_the_models_context(tmp_path: Path) -> None:
    tmp_path.mkdir(exist_ok=True)
    model = ScriptedModel(
        [plan("a"), code("x = 41"), answer("1"), plan("b"), code("print(x + 1)"), answer("2")]
    )
    listener = Listener()
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        session.send_message("first")
        session.send_message("second", listener)

    assert listener.output() == "42\n"
    assert "x = 41" in told(model, 4)
    assert "first" in told(model, 3)


def test_the_model_is_told_what_becomes_of_shell_code(tmp_path: Path) -> None:
    def prompt(name: str, approval: Approval) -> str:
        _, model = converse(
            tmp_path / name, [code("1")], approval=approval, session__roles=["code_interpreter"]
        )
        return model.requests[0][0].content

    denying = prompt("deny", Approval("deny", always_allowed=["git status"]))
    refusing = prompt("nobody", Approval(always_allowed=["git status"]))
    asking = prompt("ask", Approval(ask=lambda _: ApprovalAnswer(True)))
    trusting = prompt("auto", Approval("auto"))

    assert "has forbidden all code" in denying
    assert "These bash commands run" not in denying
    assert "are refused." in refusing
    assert "These bash commands run: git status." in refusing
    assert "A person has to approve" in asking
    assert "approve" not in trusting


def test_the_model_is_told_what_its_code_will_find(tmp_path: Path) -> None:
    model = ScriptedModel([code("3"), code("import os; os._exit(3)"), code("4")])
    with TaskWeaverApp(tmp_path, {"session.roles": ["code_interpreter"]}, model=model) as app:
        session = app.get_session()
        session.run_code("python", "sales = {'may': 1, 'june': 2}\ndef mean(values): ...")
        session.send_message("one")
        session.send_message("two")

    first, second, third = model.requests
    assert "Python 3." in first[0].content
    assert "(Python variables: sales: dict of 2, mean: function(values)." in first[-1].content
    assert "(Python variables: sales: dict of 2, " in second[-1].content
    assert "(Python variables: (none)." in third[-1].content
    assert "variables of earlier code are lost" in third[-1].content
    assert "send all of it again" in third[-1].content


def test_code_that_failed_halfway_need_not_be_sent_whole(tmp_path: Path) -> None:
    script = [code("rows = [1]\n1 / 0"), code("eval('rows')"), code("rows")]
    _, model = converse(tmp_path / "p", [*script], session__roles=["code_interpreter"])

    assert "What ran before the error need not be repeated" in model.requests[1][-1].content
    assert "rows: list of 1" in model.requests[1][-1].content
    assert "send all of it again" in model.requests[2][-1].content
