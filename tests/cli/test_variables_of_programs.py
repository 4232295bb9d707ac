"""Which variables programs, scripts and the code of chats see: no secret, but enough."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.chat_terminal import OpenChat, environ
from tests.support.command_line import PROGRAM
from tests.support.terminal_program import LIMIT_SECONDS

HARMLESS = {
    "PYENV_ROOT": "/opt/pyenv",
    "NVM_DIR": "/opt/nvm",
    "AWS_PROFILE": "work",
    "MYAPP_MODE": "fast",
    "TOKENIZERS_PARALLELISM": "false",
}
SECRETS = {
    "MYAPP_TOKEN": "tk-5a8f0c13e7",
    "MYAPP_DB": "postgres://me:hunter2secret@db/x",
    "SSH_AUTH_SOCK": "/tmp/agent.sock",
}
VARIABLES = {**HARMLESS, **SECRETS}
SHOW = "import os; print(sorted(n for n in os.environ if n in " + repr(sorted(VARIABLES)) + "))"


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environ(folder.parent, **VARIABLES),
        timeout=LIMIT_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.parametrize("command", [("run", "-c", SHOW), ("exec", "python", "-c", SHOW)])
def test_a_persons_programs_see_everything_but_secrets(
    project: Path, command: tuple[str, ...]
) -> None:
    assert run(project, *command).strip() == str(sorted(HARMLESS))


@pytest.mark.parametrize("command", [("run", "-c", SHOW), ("exec", "python", "-c", SHOW)])
def test_what_a_project_denies_they_do_not_see(project: Path, command: tuple[str, ...]) -> None:
    settings = {
        "execution_service.env_deny": ["MYAPP_*", "NVM_DIR"],
        "execution_service.env_allow": ["MYAPP_MODE", "MYAPP_TOKEN"],
    }
    (project / "taskweaver_config.json").write_text(json.dumps(settings))

    seen = run(project, *command).strip()

    assert seen == str(["AWS_PROFILE", "PYENV_ROOT", "TOKENIZERS_PARALLELISM"])


def test_the_chats_code_sees_families_of_tools_and_what_the_project_adds(
    project: Path, open_chat: OpenChat
) -> None:
    settings = {
        "execution_service.env_allow": ["MYAPP_*"],
        "execution_service.env_deny": ["AWS_*"],
    }
    (project / "taskweaver_config.json").write_text(json.dumps(settings))
    chat = open_chat(columns=200, **VARIABLES)

    chat.press(f"> {SHOW}\r")
    chat.wait_for(str(["MYAPP_MODE", "NVM_DIR", "PYENV_ROOT"]))
    chat.press("! echo $MYAPP_MODE-$NVM_DIR-$AWS_PROFILE-$MYAPP_TOKEN-$MYAPP_DB-$SSH_AUTH_SOCK.\r")
    chat.wait_for(" │   fast-/opt/nvm----.")


def test_doctor_names_what_is_withheld_and_never_what_it_holds(project: Path) -> None:
    shown = run(project, "doctor", "--json")

    [finding] = [one for one in json.loads(shown)["checks"] if one["name"] == "variables"]
    for_code, for_programs = finding["detail"].split(". Kept from run and exec: ")
    assert "MYAPP_DB (holds credentials)" in for_code
    assert "MYAPP_MODE" in for_code
    assert "(not listed)" in for_code
    assert for_programs == (
        "MYAPP_DB (holds credentials); MYAPP_TOKEN, SSH_AUTH_SOCK (secret by name)"
    )
    assert "env_allow" in finding["advice"]
    assert not [value for value in SECRETS.values() if value in shown]
