"""Roles of one's own, and which may speak to which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.config.settings import ReplyForm
from taskweaver_ext.errors import ConfigError
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.roles.base.role import find_role_class, read_role
from tests.support.conversations import Listener, answer, code, plan

SHOUT = """
from taskweaver_ext.roles.planner.planner import Planner
from taskweaver_ext.roles.base.role import Role

class Shout(Role):
    def reply(self, memory):
        post = self.context.emitter.create_post_proxy(self.alias)
        post.update_message(memory.last_post.message.upper())
        post.update_send_to(memory.asker_of(self.alias))
        return post.end()

class Chief(Planner):
    def reply(self, memory):
        post = super().reply(memory)
        post.message += ", says the chief"
        return post

class Broken(Role):
    def reply(self, memory):
        raise KeyError("a mistake of its author")
"""


def write_role(project: Path, name: str, class_name: str) -> Path:
    folder = project / "roles" / name
    folder.mkdir(parents=True)
    (folder / "shouting.py").write_text(SHOUT)
    path = folder / f"{name}.role.yaml"
    path.write_text(f"alias: {class_name}\nmodule: shouting.{class_name}\nintro: '- loud'\n")
    return path


def test_the_echo_role_answers_the_planner(tmp_path: Path) -> None:
    model = ScriptedModel([plan("say it", to="Echo"), answer("It said so.")])
    with TaskWeaverApp(tmp_path, {"session.roles": ["planner", "echo"]}, model=model) as app:
        chat_round = app.get_session().send_message("hi")

    assert [post.send_from for post in chat_round.post_list] == [
        "User",
        "Planner",
        "Echo",
        "Planner",
    ]
    assert chat_round.post_list[2].message == "say it"
    assert "word for word" in model.requests[0][0].content


def test_a_role_of_a_project_takes_part(tmp_path: Path) -> None:
    write_role(tmp_path, "shout", "Shout")
    model = ScriptedModel([plan("quiet", to="shout"), answer("It was loud.")])
    with TaskWeaverApp(tmp_path, {"session.roles": ["planner", "shout"]}, model=model) as app:
        chat_round = app.get_session().send_message("hi")

    assert chat_round.post_list[2].message == "QUIET"


def test_a_planner_of_a_project_takes_the_place_of_ours(tmp_path: Path) -> None:
    write_role(tmp_path, "chief", "Chief")
    model = ScriptedModel([answer("hello")])
    with TaskWeaverApp(tmp_path, {"session.roles": ["echo", "chief"]}, model=model) as app:
        chat_round = app.get_session().send_message("hi")

    assert chat_round.post_list[0].send_to == "Chief"
    assert chat_round.post_list[-1].message == "hello, says the chief"


def test_a_role_that_raises_fails_the_round_only(tmp_path: Path) -> None:
    write_role(tmp_path, "broken", "Broken")
    listener = Listener()
    model = ScriptedModel([plan("go", to="Broken"), answer("hello")])
    with TaskWeaverApp(tmp_path, {"session.roles": ["planner", "broken"]}, model=model) as app:
        session = app.get_session()
        failed = session.send_message("hi", listener)
        good = session.send_message("hi")

    assert failed.state == "failed"
    assert "KeyError" in listener.errors()[0]
    assert good.state == "finished"
    assert "ended without an answer" in model.requests[1][-1].content


def test_one_worker_can_do_without_a_planner(tmp_path: Path) -> None:
    listener = Listener()
    model = ScriptedModel([code("1 / 0"), code("print('alone')")])
    with TaskWeaverApp(tmp_path, {"session.roles": ["code_interpreter"]}, model=model) as app:
        chat_round = app.get_session().send_message("hi", listener)

    assert chat_round.state == "finished"
    assert chat_round.post_list[-1].send_to == "User"
    assert "alone" in chat_round.post_list[-1].message


@pytest.mark.parametrize(
    ("roles", "complaint"),
    [
        (["planner", "nobody"], "'nobody', which is unknown"),
        (["echo", "code_interpreter"], "needs one planner"),
        ([], "needs one planner"),
        (["planner", "planner"], "needs one planner"),
        (["planner", "echo", "echo"], "another one is called 'Echo'"),
    ],
)
def test_settings_that_name_the_wrong_roles_are_refused(
    tmp_path: Path, roles: list[str], complaint: str
) -> None:
    with (
        TaskWeaverApp(tmp_path, {"session.roles": roles}) as app,
        pytest.raises(ConfigError, match=complaint),
    ):
        app.get_session()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("alias: [", "cannot be read as YAML"),
        ("alias: A\nintro: x", "must hold module"),
        ("alias: A\nintro: x\nmodule: nowhere.Nobody", "cannot be imported"),
        ("alias: A\nintro: x\nmodule: json.JSONDecoder", "no class derived from Role"),
    ],
)
def test_a_bad_role_file_is_named(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "odd.role.yaml"
    path.write_text(content)

    with pytest.raises(ConfigError, match=complaint):
        find_role_class(read_role(path))


def test_examples_are_given_to_the_model_and_bad_ones_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "examples" / "planner_examples"
    folder.mkdir(parents=True)
    for name, speaker in (("good", "CodeInterpreter"), ("other", "Stranger")):
        posts = [
            {"message": f"{name} question", "send_from": "User", "send_to": "Planner"},
            {
                "message": f"{name} task",
                "send_from": "Planner",
                "send_to": speaker,
                "attachment_list": [{"type": "plan", "content": "1. one"}],
            },
        ]
        example = {"rounds": [{"user_query": "q", "state": "finished", "post_list": posts}]}
        (folder / f"{name}.yaml").write_text(json.dumps(example))
    (folder / "bad.yaml").write_text("rounds: 5")
    (folder / "off.yaml").write_text("enabled: false\nrounds: [{nonsense: 1}]")
    model = ScriptedModel([answer("a"), answer("b")])

    with TaskWeaverApp(tmp_path, model=model) as app:
        app.get_session().send_message("real question")
    with TaskWeaverApp(tmp_path, {"planner.use_example": False}, model=model) as app:
        app.get_session().send_message("real question")

    with_examples, without = (
        "\n".join(message.content for message in request) for request in model.requests
    )
    assert "good task" in with_examples
    assert "other task" not in with_examples
    assert with_examples.index("good task") < with_examples.index("The examples end here")
    assert "good task" not in without
    assert "bad.yaml" in caplog.text
    assert "off.yaml" not in caplog.text


def test_a_prompt_of_ones_own_is_used(tmp_path: Path) -> None:
    prompt = tmp_path / "my_prompt.yaml"
    prompt.write_text("instruction_template: 'My words. {worker_intro} {unknown}'")
    model = ScriptedModel([answer("a")])

    with TaskWeaverApp(tmp_path, {"planner.prompt_file_path": str(prompt)}, model=model) as app:
        app.get_session().send_message("hi")

    system = model.requests[0][0].content
    assert system.startswith("My words. ## CodeInterpreter")
    assert system.endswith("{unknown}")


@pytest.mark.parametrize("reply_form", ["json", "channels"])
def test_what_a_prompt_of_ones_own_has_no_place_for_is_added(
    tmp_path: Path, reply_form: ReplyForm
) -> None:
    prompt = tmp_path / "taskweavers_prompt.yaml"
    prompt.write_text(
        "version: 0.1\n"
        "content: 'My words for {ROLE_NAME}. {RESPONSE_JSON_SCHEMA}'\n"
        "conversation_head: '{SUMMARY} {PLUGINS}'\n"
        "requirements: [nothing]\n"
    )
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "knit.yaml").write_text("name: knit\ndescription: Knits.\n")
    (plugins / "knit.py").write_text(
        "from taskweaver.plugin import register_plugin\n@register_plugin\ndef knit(): pass\n"
    )
    settings: dict[str, object] = {
        "session.roles": ["code_interpreter"],
        "code_generator.prompt_file_path": str(prompt),
    }
    model = ScriptedModel([code("1 + 1")])
    with TaskWeaverApp(tmp_path, settings, model=model, reply_form=reply_form) as app:
        app.get_session().send_message("hi")

    system = model.requests[0][0].content
    assert system.startswith("My words for CodeInterpreter. ")
    assert "def knit()" in system
    assert "refused before it runs: eval" in system
    assert ("reply_content" if reply_form == "json" else "<channel:code>") in system


def test_a_prompt_without_what_it_needs_is_refused(tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.yaml"
    prompt.write_text("content: 7")
    settings: dict[str, object] = {"code_generator.prompt_file_path": str(prompt)}
    with (
        TaskWeaverApp(tmp_path, settings, model=ScriptedModel([])) as app,
        pytest.raises(ConfigError, match="has no text content"),
    ):
        app.get_session()
