"""Children see what programs need and none of our secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from taskweaver_ext.machine.child_environment import (
    FOR_AGENTS,
    EnvironmentRules,
    child_environment,
    is_passed_on,
)
from tests.support.data import DATA

VECTORS = json.loads((DATA / "13_env_filter.json").read_text())

# Deviations: an agent's socket lets its holder act as the user, so it is refused; and the
# prefix that marks variables as meant for this software is ours.
REFUSED_BY_US = {"SSH_AUTH_SOCK", "SSH_AGENT_PID"}
FOR_A_PERSON = EnvironmentRules(is_for_person=True)
ADDED = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}


def _ours(name: str) -> str:
    return name.replace("PI_", "TASKWEAVER_", 1) if name.startswith("PI_") else name


@pytest.mark.parametrize(
    "case", [case for case in VECTORS["cases"] if "input" in case], ids=lambda case: case["id"]
)
def test_recorded_cases(case: dict[str, dict[str, str]]) -> None:
    source = {_ours(name): value for name, value in case["input"].items()}
    expected = {_ours(name): value for name, value in case["expect"].items()}

    assert child_environment(source=source) == {**expected, **ADDED}


@pytest.mark.parametrize("name", VECTORS["allow_exact"] + VECTORS["allow_exact_windows_extra"])
def test_recorded_allow_list(name: str) -> None:
    assert is_passed_on(name, "x") == (name not in REFUSED_BY_US)


@pytest.mark.parametrize("name", VECTORS["deny"])
def test_recorded_deny_list(name: str) -> None:
    assert not is_passed_on(name, "x")


@pytest.mark.parametrize(
    "name",
    [
        "TASKWEAVER_GATEWAY_TOKEN",
        "XDG_SECRET",
        "LC_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "DATABASE_URL",
        "AZURE_STORAGE_CONNECTION_STRING",
        "PGPASSWORD",
        "SOMETHING_UNKNOWN",
    ],
)
def test_a_refusal_beats_every_permission(name: str) -> None:
    assert not is_passed_on(name, "x")


@pytest.mark.parametrize(
    "name",
    """
    MYSQL_PWD DB_PASS PASS SSHPASS db_pw LDAP_BINDPW USERPWD MYAPP_CRED MYAPP_CREDS CREDS
    MYAPP_PASSCODE MYAPP_BEARER SLACK_WEBHOOK SLACK_WEBHOOK_URL GIT_ASKPASS SSH_ASKPASS
    SUDO_ASKPASS VSCODE_GIT_IPC_HANDLE BUNDLE_RUBYGEMS__PKG__GITHUB__COM
    """.split(),
)
@pytest.mark.parametrize("rules", [FOR_AGENTS, FOR_A_PERSON, EnvironmentRules(allow=("*",))])
def test_passwords_and_doors_to_them_are_known_by_name(name: str, rules: EnvironmentRules) -> None:
    assert not is_passed_on(name, "x", rules)


@pytest.mark.parametrize(
    "name", "PWD OLDPWD COMPASS MYAPP_BYPASS SACRED BUNDLE_BUILD__NOKOGIRI BUNDLE_PATH".split()
)
def test_names_that_only_look_like_passwords_are_a_persons_own(name: str) -> None:
    assert is_passed_on(name, "x", FOR_A_PERSON)


def test_git_works_when_one_of_its_settings_is_a_secret(tmp_path: Path) -> None:
    settings = [
        ("http.extraHeader", "Authorization: Basic bWU6c2VjcmV0"),
        ("safe.directory", "*"),
        ("user.name", "me"),
    ]
    ours = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_COUNT": "3"}
    for number, (key, value) in enumerate(settings):
        ours |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}

    environment = child_environment(source=ours, rules=FOR_A_PERSON)
    listing = ["git", "config", "--list"]
    git = subprocess.run(listing, env=environment, capture_output=True, text=True, cwd=tmp_path)

    assert (git.returncode, git.stderr) == (0, "")
    assert "safe.directory=*\nuser.name=me\n" in git.stdout
    assert "extraheader" not in git.stdout


def test_a_plugins_variable_is_granted_by_its_name() -> None:
    assert is_passed_on("PLUGIN_sql_API_KEY", "given on purpose")


def test_a_proxy_with_a_password_in_it_is_refused() -> None:
    assert is_passed_on("HTTPS_PROXY", "http://proxy:3128")
    assert not is_passed_on("HTTPS_PROXY", "http://me:pw@proxy:3128")


def test_the_callers_own_variables_win() -> None:
    environment = child_environment({"LANG": "C", "MY_TOKEN": "mine"}, source={"LANG": "de_DE"})

    assert environment["LANG"] == "C"
    assert environment["MY_TOKEN"] == "mine"


ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
SECRETS = {"SOME_API_KEY": "hidden-1", "NOT_ALLOWED": "hidden-2 ä", "PLUGIN_a_KEY": "granted"}
LOOK = 'tr "\\0" "\\n" < /proc/$PPID/environ'


@ON_LINUX
def test_only_what_is_passed_on_is_shown_and_all_of_it_stays() -> None:
    program = f"""
import os, subprocess
from taskweaver_ext.machine.child_environment import hide_what_is_not_passed_on
os.environ["NOT_ALLOWED"] = "changed"
hide_what_is_not_passed_on()
hide_what_is_not_passed_on()
print(subprocess.run({LOOK!r}, shell=True, capture_output=True, text=True).stdout)
print("ours:", os.environ["SOME_API_KEY"], os.getenv("NOT_ALLOWED"), flush=True)
subprocess.run("echo inherited: $SOME_API_KEY $NOT_ALLOWED", shell=True)
"""
    shown, _, ours = _run([sys.executable, "-c", program]).partition("ours: ")

    assert "hidden" not in shown
    assert "PLUGIN_a_KEY=granted\n" in shown
    assert f"PATH={os.environ['PATH']}\n" in shown
    assert ours == "hidden-1 changed\ninherited: hidden-1 changed\n"


@ON_LINUX
def test_a_program_that_the_command_line_runs_does_not_find_our_secrets() -> None:
    shown = _run([sys.executable, "-m", "taskweaver_ext.cli", "exec", "bash", "-c", LOOK])

    assert "hidden" not in shown
    assert "PLUGIN_a_KEY=granted\n" in shown


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command,
        env={**child_environment(), **SECRETS},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout
