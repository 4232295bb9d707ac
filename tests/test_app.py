"""An application: settings in, sessions out, nothing left behind."""

from __future__ import annotations

import contextlib
import functools
import json
import threading
from pathlib import Path

import pytest
from docker import DockerClient

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.approval import Approval
from taskweaver_ext.ces.execution.events import LogRecorded
from taskweaver_ext.conversation import AttachmentType
from taskweaver_ext.demo import DEMO_REQUEST, LABEL, demo_model, make_demo_app
from taskweaver_ext.errors import ConfigError, SessionError
from taskweaver_ext.llm.chat_model import Message
from taskweaver_ext.llm.scripted import ScriptedModel
from tests.support.containers import IMAGE as CONTAINER_IMAGE
from tests.support.containers import container_of, require_engine
from tests.support.conversations import Background, Listener, answer, attached, code, plan
from tests.support.executions import LIMIT_SECONDS, wait_until
from tests.support.gateways import TOKEN, kernel_gateway
from tests.support.model_server import ModelServer, ScriptedAnswer

PROJECT = Path(__file__).resolve().parent.parent / "project"


def test_two_sessions_at_once_do_not_mix(tmp_path: Path) -> None:
    both_run = threading.Barrier(2, timeout=LIMIT_SECONDS)

    def script_of(name: str) -> list[str]:
        source = f"who = '{name}'\nfor i in range(200):\n    print(who, i)\nprint(who)"
        return [plan(f"for {name}"), code(source), answer(f"done with {name}")]

    def replies(messages: object) -> str:
        text = str(messages)
        name = "ada" if "I am ada" in text or "for ada" in text else "bob"
        plan_reply, code_reply, answer_reply = script_of(name)
        if "You are CodeInterpreter" in text:
            both_run.wait()
            return code_reply
        return answer_reply if "From: CodeInterpreter" in text else plan_reply

    model = ScriptedModel([replies] * 6)
    listeners = {"ada": Listener(), "bob": Listener()}
    with TaskWeaverApp(tmp_path, model=model) as app:
        sessions = {name: app.get_session(name) for name in listeners}

        def talk(name: str) -> object:
            return sessions[name].send_message(f"I am {name}", listeners[name])

        running = [Background(functools.partial(talk, name)) for name in listeners]
        for work in running:
            work.result()
        values = {name: sessions[name].run_code("python", "who").output for name in sessions}

    for name, listener in listeners.items():
        expected = "".join(f"{name} {number}\n" for number in range(200)) + f"{name}\n"
        assert listener.output() == expected
        assert listener.errors() == []
    assert values == {"ada": "'ada'", "bob": "'bob'"}


@pytest.mark.parametrize(
    ("settings", "description"),
    [
        ({}, "none is set; put llm.api_key"),
        ({"llm.api_key": "", "llm.model": "gpt-4o"}, "none is set; put llm.api_key"),
        ({"llm.api_key": "k", "llm.model": "gpt-4o"}, "gpt-4o at https://api.openai.com/v1"),
        ({"llm.api_type": "ollama", "llm.model": "qwen3"}, "qwen3 at http://localhost:11434/v1"),
        ({"llm.api_type": "local", "llm.model": "/m/smol.gguf"}, "smol on this machine"),
        ({"llm.api_type": "olama"}, "cannot be used: The model's settings"),
        ({"llm.api_type": "azure", "llm.api_key": "k"}, "cannot be used: llm.api_type is"),
    ],
)
def test_an_application_says_in_one_line_which_model_answers(
    tmp_path: Path, settings: dict[str, object], description: str
) -> None:
    with TaskWeaverApp(tmp_path, settings) as app:
        said = app.describe_model()

    assert said.startswith(description)
    assert "\n" not in said


def test_a_taskweaver_project_loads_unchanged(tmp_path: Path) -> None:
    config = {
        "llm.api_base": "https://api.example.com/v1",
        "llm.api_key": "",
        "llm.model": "gpt-4-1106-preview",
        "code_generator.load_plugin": True,
        "planner.example_base_path": "${AppBaseDir}/examples/planner_examples",
    }
    (tmp_path / "taskweaver_config.json").write_text(json.dumps(config))
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "tell_size.yaml").write_text(
        "name: tell_size\nenabled: true\nrequired: false\n"
        "description: >-\n  Tells how long something is.\n"
        'examples:\n  size, text = tell_size("abc")\n\n'
        "parameters:\n  - name: what\n    type: str\n    required: true\n"
        "    description: >-\n      anything\n"
        "returns:\n  - name: size\n    type: int\n    description: the length\n"
        "  - name: text\n    type: str\n    description: in words\n"
    )
    (plugins / "tell_size.py").write_text(
        "from taskweaver.plugin import Plugin, register_plugin\n"
        "from taskweaver.plugin.context import temp_context\n\n"
        "@register_plugin\n"
        "class TellSize(Plugin):\n"
        "    def __call__(self, what: str):\n"
        "        return len(what), f'{what} has {len(what)}'\n\n"
        "if __name__ == '__main__':\n"
        "    with temp_context() as temp_ctx:\n"
        "        print(TellSize(name='t', ctx=temp_ctx, config={})('abc'))\n"
    )
    examples = tmp_path / "examples" / "code_generator_examples"
    examples.mkdir(parents=True)
    (examples / "example.yaml").write_text(
        "enabled: True\nrounds:\n  - user_query: hello\n    state: finished\n    post_list:\n"
        "      - message: hello\n        send_from: Planner\n        send_to: CodeInterpreter\n"
        "        attachment_list: []\n"
        "      - message: Welcome.\n        send_from: CodeInterpreter\n"
        "        send_to: Planner\n        attachment_list:\n"
        "          - type: thought\n            content: '{ROLE_NAME} greets.'\n"
        "          - type: reply_type\n            content: text\n"
        "          - type: reply_content\n            content: Welcome.\n"
        "          - type: execution_status\n            content: NONE\n"
    )
    model = ScriptedModel([plan("measure"), code("tell_size('four')"), answer("4")])

    with TaskWeaverApp(tmp_path, model=model) as app:
        chat_round = app.get_session().send_message("how long is four?")

    result = attached(chat_round.post_list[2], AttachmentType.execution_result)
    assert "(4, 'four has 4')" in result
    heard = "\n".join(message.content for message in model.requests[1])
    assert "def tell_size(what: str) -> tuple[int, str]" in heard
    assert "CodeInterpreter greets." in heard
    assert not (tmp_path / "workspace").exists()


def test_without_a_model_the_round_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "taskweaver_config.json").write_text(
        '{"llm.api_type": "openai", "llm.api_key": "", "llm.model": "gpt-4o"}'
    )
    listener = Listener()
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        chat_round = session.send_message("hi", listener)
        result = session.run_code("python", "1 + 1")

    assert chat_round.state == "failed"
    for way in ("openai", "anthropic", "ollama", "local", "model fetch", "/demo", ">"):
        assert way in listener.errors()[0]
    assert result.output == "2"


def test_a_model_by_alias_must_exist(tmp_path: Path) -> None:
    listener = Listener()
    with TaskWeaverApp(tmp_path, {"planner.llm_alias": "small"}) as app:
        app.get_session().send_message("hi", listener)

    assert "'small'" in listener.errors()[0]


def test_each_role_may_have_a_model_of_its_own(tmp_path: Path) -> None:
    planning = [ScriptedAnswer(plan("go")), ScriptedAnswer(answer("done"))]
    coding = [ScriptedAnswer(code("print(prefix)"))]
    with ModelServer(planning) as large, ModelServer(coding) as small:
        settings: dict[str, object] = {
            "llm.api_base": large.openai_url,
            "llm.api_key": "key-of-large",
            "llm.model": "large",
            "llm.temperature": 0.5,
            "ext_llms.llm_configs": {
                "coder": {
                    "llm.api_type": "openai",
                    "llm.api_base": small.openai_url,
                    "llm.model": "small",
                }
            },
            "code_generator.llm_alias": "coder",
            "code_interpreter.code_prefix": "prefix = 'before everything'",
        }
        listener = Listener()
        with TaskWeaverApp(tmp_path, settings) as app:
            chat_round = app.get_session().send_message("go", listener)

    assert chat_round.state == "finished"
    assert listener.output() == "before everything\n"
    assert [request.body["model"] for request in large.requests] == ["large", "large"]
    [request] = small.requests
    assert (request.body["model"], request.body["temperature"]) == ("small", 0.5)
    assert "key-of-large" not in str(request.headers)


def test_a_project_may_add_languages(tmp_path: Path) -> None:
    languages = {"Shout": {"command": "echo", "arguments": ["loud:", "{code}"]}}
    (tmp_path / "taskweaver_config.json").write_text(
        json.dumps({"execution_service.languages": languages})
    )
    model = ScriptedModel([plan("Shout."), code("hi", "shout"), answer("It is done.")])

    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session(approval=Approval("auto"))
        mine = session.run_code("shout", "hey")
        listener = Listener()
        chat_round = session.send_message("Shout, please.", event_handler=listener)

    assert mine.stdout == ["loud: hey\n"]
    assert listener.output() == "loud: hi\n"
    assert chat_round.state == "finished"
    assert any("shout" in message.content for message in model.requests[1])


@pytest.mark.parametrize(
    ("languages", "complaint"),
    [
        ({"shout": {}}, "'shout' is not configured well: 'command' is missing"),
        (["shout"], "must be an object that holds objects"),
        ({"shout": "echo"}, "must be an object that holds objects"),
    ],
)
def test_a_language_that_makes_no_sense_is_named(
    tmp_path: Path, languages: object, complaint: str
) -> None:
    with (
        pytest.raises(ConfigError, match=complaint),
        TaskWeaverApp(tmp_path, {"execution_service.languages": languages}) as app,
    ):
        app.get_session()


def test_a_session_is_found_again_by_its_id(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session("mine")
        assert app.get_session("mine") is session
        assert app.get_session() is not app.get_session()
        app.stop_session("mine")
        assert app.get_session("mine") is not session
        for bad in ("../out", "", "a/b", ".hidden"):
            with pytest.raises(ConfigError):
                app.get_session(bad or " ")


def test_a_workspace_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        TaskWeaverApp(tmp_path, {"workspace.workspace_path": "file/below"}) as app,
        pytest.raises(
            ConfigError, match=r"cannot be made \(Not a directory\).*WORKSPACE_WORKSPACE_PATH"
        ),
    ):
        app.get_session()


def test_a_closed_application_makes_no_sessions(tmp_path: Path) -> None:
    app = TaskWeaverApp(tmp_path)
    session = app.get_session()
    session.run_code("bash", "sleep 1000 &")
    app.close()
    app.close()

    with pytest.raises(SessionError, match="closed"):
        app.get_session()


def test_closing_ends_a_round_that_is_under_way(tmp_path: Path) -> None:
    listener = Listener()
    app = TaskWeaverApp(tmp_path)
    session = app.get_session()
    source = "print('going'); import time; time.sleep(1000)"
    running = Background(lambda: session.run_code("python", source, listener))
    wait_until(lambda: "going" in listener.output())

    app.close()

    result = running.result()
    assert not getattr(result, "is_success", False)


def test_the_demonstration_shows_everything_and_says_what_it_is(tmp_path: Path) -> None:
    listener = Listener()
    with make_demo_app(PROJECT / "plugins", tmp_path, delay_seconds=0) as app:
        session = app.get_session()
        chat_round = session.send_message(DEMO_REQUEST, listener)

    assert chat_round.state == "finished"
    statuses = [
        attached(post, AttachmentType.execution_status)
        for post in chat_round.post_list
        if post.send_from == "CodeInterpreter"
    ]
    assert statuses == ["FAILURE", "SUCCESS", "SUCCESS", "SUCCESS"]
    assert "\rmaking days [###" in listener.output()
    logged = [str(one) for one in listener.executions() if isinstance(one, LogRecorded)]
    assert any("the clearest period is 7" in one for one in logged)
    assert len(list(session.cwd.glob("*chart.png"))) == 1
    assert "every 7 steps" in chat_round.post_list[-1].message
    assert LABEL in chat_round.post_list[-1].message
    assert "scripted" in demo_model().name


def test_our_project_folder_loads_without_complaint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel([plan("x"), code("1"), answer("a")])
    settings = {
        "workspace.workspace_path": str(tmp_path),
        "execution_service.env_dir": str(tmp_path),
    }
    with TaskWeaverApp(PROJECT, settings, model=model) as app:
        chat_round = app.get_session().send_message("hi")

    assert chat_round.state == "finished"
    assert caplog.records == []
    assert "orders.csv" in str(model.requests[0])
    assert "temperatures.csv" in str(model.requests[1])
    assert all(isinstance(message, Message) for message in model.requests[0])


@pytest.mark.parametrize(("mode", "is_on"), [("local", True), ("container", False)])
def test_verification_is_on_by_default_where_nothing_else_protects(
    tmp_path: Path, mode: str, is_on: bool
) -> None:
    with TaskWeaverApp(tmp_path, {"execution_service.kernel_mode": mode}) as app:
        assert app.config.code_interpreter.code_verification_on is is_on


@pytest.fixture(scope="module")
def engine_url() -> str:
    return require_engine().url


@pytest.fixture(scope="module")
def gateway_url() -> str:
    return kernel_gateway().url


@pytest.mark.parametrize("named_by", ["file", "variable"])
def test_a_project_may_name_engine_and_image(
    engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    in_file, variable = engine_url, ""
    if named_by == "variable":  # which wins
        in_file, variable = f"unix://{tmp_path}/no.sock", engine_url
    monkeypatch.setenv("DOCKER_HOST", variable)
    write_settings(
        tmp_path, kernel_mode="container", engine_url=in_file, custom_image=CONTAINER_IMAGE
    )

    with TaskWeaverApp(tmp_path) as app:
        app.environment.start_session("s1")
        with contextlib.closing(DockerClient(base_url=engine_url)) as client:
            image = container_of(client, "s1").image

    assert image is not None
    assert CONTAINER_IMAGE in image.tags


@pytest.mark.parametrize("named_by", ["file", "variable"])
def test_a_project_may_name_a_gateway(
    gateway_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    in_file, variable = gateway_url, ""
    if named_by == "variable":  # which wins
        in_file, variable = "http://127.0.0.1:1", gateway_url
    monkeypatch.setenv("TASKWEAVER_GATEWAY_URL", variable)
    monkeypatch.setenv("TASKWEAVER_GATEWAY_TOKEN", TOKEN if named_by == "variable" else "")
    write_settings(tmp_path, kernel_mode="gateway", gateway_url=in_file, gateway_token=TOKEN)

    with TaskWeaverApp(tmp_path) as app:
        app.environment.start_session("s1")
        result = app.environment.execute_code("s1", "6 * 7")

    assert result.output == "42"


def write_settings(folder: Path, **settings: str) -> None:
    named = {f"execution_service.{name}": value for name, value in settings.items()}
    (folder / "taskweaver_config.json").write_text(json.dumps(named))


def test_settings_choose_the_reply_form_and_what_asks_first(tmp_path: Path) -> None:
    settings = {
        "code_interpreter.reply_form": "channels",
        "code_interpreter.approval": "ask",
        "code_interpreter.approval_scope": "all",
        "code_interpreter.always_allowed": ["ls *"],
    }

    with TaskWeaverApp(tmp_path, settings, model=ScriptedModel([])) as app:
        approval = app.get_session().approval

    assert app.config.code_interpreter.reply_form == "channels"
    assert approval.rules.level == "ask all"
    assert approval.rules.patterns == ("ls *",)
