"""What a project keeps secret does not reach the model, the record or a frontend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.errors import ConfigError
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.text.redaction import MASK
from tests.support.conversations import Listener, answer, code, plan

LLM_KEY = "llm-key-93bf21"
OTHER_KEY = "other-key-8d20c7"
PLUGIN_KEY = "plugin-key-5a61e0"
TOKEN = "gateway-token-77aa"
VARIABLE = "from-a-variable-0c4d"
OF_ANOTHER_PROGRAM = "unknown-key-41f7aa"
REPLACED = "replaced-key-6e02d9"
OF_UNUSED_PLUGIN = "unused-key-b35c18"
PATTERN = "EMP-424242"
SECRETS = (
    *(LLM_KEY, OTHER_KEY, PLUGIN_KEY, TOKEN, VARIABLE, PATTERN),
    *(OF_ANOTHER_PROGRAM, REPLACED, OF_UNUSED_PLUGIN),
)

READ_THE_PROJECT = """
import pathlib
for path in sorted(pathlib.Path({project!r}).rglob('*')):
    if path.is_file() and path.suffix in ('.json', '.yaml', '.txt'):
        print(path.name, path.read_text())
pathlib.Path('copy.txt').write_text(pathlib.Path({project!r}, 'secrets.txt').read_text())
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with keys wherever one can be."""
    monkeypatch.setenv("SOME_SERVICE_API_KEY", VARIABLE)
    monkeypatch.setenv("LLM_API_KEY", LLM_KEY)
    folder = tmp_path / "project"
    (folder / "plugins").mkdir(parents=True)
    settings = {
        "llm.api_key": REPLACED,
        "llm.model": "any",
        "web_explorer.gpt4v_key": OF_ANOTHER_PROGRAM,
        "ext_llms.llm_configs": {"other": {"llm.api_key": OTHER_KEY}},
        "execution_service.gateway_url": f"http://127.0.0.1:9/?token={TOKEN}",
        "execution_service.redact_patterns": ["EMP-\\d{6}"],
        "workspace.workspace_path": str(tmp_path / "workspace"),
    }
    (folder / "taskweaver_config.json").write_text(json.dumps(settings))
    (folder / "secrets.txt").write_text(f"{VARIABLE} {PATTERN}\n")
    (folder / "plugins" / "fetch.yaml").write_text(
        f"name: fetch\nenabled: true\ndescription: fetches with {PLUGIN_KEY}\n"
        f"configurations:\n  api_key: {PLUGIN_KEY}\n"
    )
    (folder / "plugins" / "unused.yaml").write_text(
        "name: unused\nenabled: false\ndescription: fetches nothing\n"
        f"configurations:\n  api_key: {OF_UNUSED_PLUGIN}\n"
    )
    for name in ("fetch", "unused"):
        (folder / "plugins" / f"{name}.py").write_text(
            "from taskweaver.plugin import Plugin, register_plugin\n"
            "@register_plugin\nclass Fetch(Plugin):\n    def __call__(self): return 1\n"
        )
    return folder


def script(project: Path) -> list[str]:
    return [plan("read it"), code(READ_THE_PROJECT.format(project=str(project))), answer("done")]


def test_the_model_the_record_and_listeners_never_see_a_secret(
    project: Path, tmp_path: Path
) -> None:
    model = ScriptedModel(script(project))
    listener = Listener()

    with TaskWeaverApp(project, model=model) as app:
        session = app.get_session("s1")
        chat_round = session.send_message("read the project", listener)
        shell = session.run_code("bash", f"cat {project}/secrets.txt", listener)
        copy = (session.cwd / "copy.txt").read_text()

    assert chat_round.is_done, chat_round.error
    assert MASK in listener.output()
    assert shell.stdout == [f"{MASK} {MASK}\n"]
    told = {
        "model": repr(model.requests),
        "events": repr(listener.events),
        "rounds": repr([one.to_dict() for one in session.rounds]),
    }
    workspace = tmp_path / "workspace"
    told |= {
        str(path): path.read_text(errors="replace")
        for path in workspace.rglob("*")
        if path.is_file() and path.name != "copy.txt"
    }
    leaks = [(place, one) for place, text in told.items() for one in SECRETS if one in text]
    assert leaks == []
    assert copy == f"{VARIABLE} {PATTERN}\n"  # the code's own file


def test_what_a_person_types_is_theirs_and_what_code_makes_of_it_is_masked(project: Path) -> None:
    typed = f"log in with {VARIABLE}"
    model = ScriptedModel([plan(typed), code(f"print({VARIABLE!r})"), answer("done")])

    with TaskWeaverApp(project, model=model) as app:
        session = app.get_session()
        session.send_message(typed)
        result = session.run_code("python", f"print({VARIABLE!r})")

    assert typed in model.requests[0][-1].content
    assert VARIABLE not in model.requests[2][-1].content
    assert result.stdout == [f"{MASK}\n"]


def test_the_model_is_told_of_files_without_the_secrets_in_their_names(project: Path) -> None:
    make = code(f"open('for-{PLUGIN_KEY}.txt', 'w').close()")
    model = ScriptedModel(
        [plan("make"), make, answer("made"), plan("look"), code("1"), answer("2")]
    )

    with TaskWeaverApp(project, model=model) as app:
        session = app.get_session()
        session.send_message("make a file")
        session.send_message("look at it")
        has_file = (session.cwd / f"for-{PLUGIN_KEY}.txt").exists()

    assert has_file
    assert f"working directory: for-{MASK}.txt" in model.requests[4][-1].content


def test_a_project_can_turn_it_off(project: Path) -> None:
    settings = {"execution_service.redact": False}
    with TaskWeaverApp(project, settings, model=ScriptedModel([])) as app:
        result = app.get_session().run_code("python", f"print({LLM_KEY!r})")

    assert result.stdout == [f"{LLM_KEY}\n"]


def test_a_pattern_that_cannot_be_used_is_named(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"redact_patterns.*\(a\|b\)"):
        TaskWeaverApp(project, {"execution_service.redact_patterns": ["(a|b)+"]})
