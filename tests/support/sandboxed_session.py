"""A session in a sandbox whose kernel, shell and programs try to get out. A script.

    python sandboxed_session.py FOLDER SETTINGS [shared]

The folder is a world's (`sandboxes.py`); with "shared", code gets no file system of its own.
Prints what came of each attempt as a JSON object, by who made it, with the notices of the
session; or the sentence why there is no sandbox.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from taskweaver_ext import Environment, EnvMode, ExecutorRegistry, TaskWeaverError
from taskweaver_ext.ces.sandbox import sandbox
from taskweaver_ext.config.sandbox import SandboxSettings

SECRET = "the-secret-of-others"
SECONDS = 300.0


def main() -> None:
    """Open the session and have everything tried."""
    folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    if sys.argv[3:] == ["shared"]:
        lesser = replace(sandbox.probe(), has_private_view=False)
        setattr(sandbox, "probe", lambda: lesser)  # noqa: B010 - of another type
    try:
        print(json.dumps(_try_to_escape(folder, settings)))  # noqa: T201
    except TaskWeaverError as error:
        print(json.dumps({"refused": str(error)}))  # noqa: T201


def _try_to_escape(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    source = folder / "source"
    readable = (str(folder / "shared"), str(source))
    allowed = SandboxSettings(**{"readable": readable, **settings})
    with contextlib.ExitStack() as stack:
        victim = stack.enter_context(_victim(folder))
        local = stack.enter_context(Environment(folder / "outside/local"))
        local.start_session("other")
        environment = stack.enter_context(
            Environment(folder / "outside/env", EnvMode.Sandbox, sandbox=allowed)
        )
        session = folder / "outside/session"
        environment.start_session("s1", session_dir=session, cwd=folder / "work")
        (session / "ces/kept").write_text(SECRET)
        registry = stack.enter_context(ExecutorRegistry(environment, "s1"))
        world = {
            **victim,
            **json.loads((folder / "source/surroundings.json").read_text()),
            "session": str(session),
            "owner": os.getpid(),
            "zygote": psutil.Process(environment.sessions()[0].pid).ppid(),
            "other": _folder_of_kernel(local),
            "inherited": os.open(folder / "outside/secret", os.O_RDONLY),
            "survivor": f"survivor-{os.getpid()}",
        }
        os.set_inheritable(int(world["inherited"]), True)
        found: dict[str, Any] = {"notices": []}
        script = str(source / "session_escapes.py")
        described = json.dumps(world)
        in_kernel = (
            f"import sys; sys.path.insert(0, {str(source)!r}); import session_escapes;"
            f" session_escapes.try_all({described!r}, 'kernel')"
        )
        command = shlex.join(["python3", script, described])
        for who, executor, code in (
            ("kernel", registry.get("python"), in_kernel),
            ("shell", registry.get("bash"), f"{command} shell"),
            ("program", registry.get("bash", fresh=True), f"{command} program"),
        ):
            result = executor.execute(code, timeout=SECONDS)
            assert result.is_success, (who, result.error, result.stderr)
            found[who] = json.loads((folder / "work" / who).read_text())
            found["notices"] += [notice.message for notice in result.notices]
        found["survivor"] = world["survivor"]
    return found


@contextlib.contextmanager
def _victim(folder: Path) -> Iterator[dict[str, Any]]:
    script = str(folder / "source/escape_victim.py")
    command = [sys.executable, script, str(folder / "outside"), SECRET]
    with subprocess.Popen(
        command,
        env={"KEY": SECRET},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.communicate()


def _folder_of_kernel(environment: Environment) -> str:
    code = "import ipykernel.kernelapp as a; a.IPKernelApp.instance().connection_file"
    path = environment.execute_code("other", code).output.strip("'")
    return str(Path(path).parent)


if __name__ == "__main__":
    main()
