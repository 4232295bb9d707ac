"""What a sandbox is made of: what the machine can enforce, what is refused, and the limits."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext.ces.inside.sandbox import landlock, seccomp
from taskweaver_ext.ces.inside.sandbox.rules import Rules
from taskweaver_ext.ces.inside.sandbox.system_calls import HIGHEST_KNOWN, NUMBERS
from taskweaver_ext.ces.sandbox import sandbox
from taskweaver_ext.errors import ConfigError
from tests.support.sandboxes import NOBODY, World, limited_group, make_world

ALL = sandbox.Enforcement(has_private_view=True, missing={}, remarks=())
USERS = [os.getuid(), NOBODY] if os.getuid() == 0 else [os.getuid()]

enforced = pytest.mark.skipif(
    bool(sandbox.probe().missing.keys() & {"files", "network", "processes"}),
    reason="this machine cannot enforce a sandbox",
)

private_view = pytest.mark.skipif(
    not sandbox.probe().has_private_view, reason="this machine gives no file system of its own"
)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with make_world() as made:
        yield made


@pytest.fixture(scope="module", params=USERS)
def users_world(request: pytest.FixtureRequest) -> Iterator[World]:
    with make_world(request.param) as made:
        yield made


def test_rules_survive_their_way_as_json(world: World) -> None:
    rules = world.rules(has_private_view=True)

    assert Rules.from_json(json.loads(json.dumps(dataclasses.asdict(rules)))) == rules


@pytest.mark.parametrize("folder", ["/", "~", "~/..", "/proc/self/root"])
def test_a_folder_that_holds_all_of_the_users_files_is_refused(folder: str, tmp_path: Path) -> None:
    rules = sandbox.sandbox_rules(Path(folder).expanduser(), tmp_path, ALL)

    with pytest.raises(ConfigError, match="cannot be the working folder of a sandbox"):
        sandbox.check(rules, ALL)


@pytest.mark.skipif(os.getuid() != 0, reason="only root has rights that a sandbox takes")
def test_roots_rights_on_folders_of_others_are_not_the_sandboxs(tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    rules = sandbox.sandbox_rules(folder, tmp_path, ALL)
    os.chown(folder, NOBODY, NOBODY)
    for mode in (0o700, 0o744):
        folder.chmod(mode)
        with pytest.raises(ConfigError, match="none of root's rights"):
            sandbox.check(rules, ALL)
    for mode, count in ((0o755, 1), (0o777, 0)):
        folder.chmod(mode)
        sandbox.check(rules, ALL)
        assert len(sandbox.remarks_on_folder(folder)) == count
    os.chown(folder, 0, 0)
    folder.chmod(0o700)
    sandbox.check(rules, ALL)
    assert sandbox.remarks_on_folder(folder) == ()


def test_what_cannot_be_enforced_is_refused_with_the_setting_that_accepts_less(
    tmp_path: Path,
) -> None:
    lesser = sandbox.Enforcement(
        has_private_view=False, missing={"processes": "It is too old."}, remarks=()
    )
    rules = sandbox.sandbox_rules(tmp_path / "work", tmp_path / "temporary", lesser)

    with pytest.raises(ConfigError) as refusal:
        sandbox.check(rules, lesser)
    sandbox.check(rules, lesser, ["files", "network"])

    assert str(refusal.value) == (
        "This machine cannot enforce processes of a sandbox. It is too old. Use containers, or"
        ' accept less: set sandbox.require to ["files", "network", "process_count"].'
    )


def test_a_python_that_code_could_change_is_refused_unless_it_can_be_protected(
    tmp_path: Path,
) -> None:
    (tmp_path / "work/.venv").mkdir(parents=True)
    folders = [str(tmp_path / "work/.venv")]
    shared = dataclasses.replace(ALL, has_private_view=False)

    with pytest.raises(ConfigError, match="lies within the working folder"):
        sandbox.check(
            sandbox.sandbox_rules(tmp_path / "work", tmp_path, shared, python_folders=folders),
            shared,
        )
    sandbox.check(
        sandbox.sandbox_rules(tmp_path / "work", tmp_path, ALL, python_folders=folders), ALL
    )


def test_an_old_kernel_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)

    found = sandbox.probe.__wrapped__()

    assert found.missing.keys() >= {"files", "network", "processes"}
    assert "has no Landlock" in found.missing["files"]
    assert not found.has_private_view
    assert any("no file system of its own" in remark for remark in found.remarks)


def test_what_a_machine_without_control_groups_cannot_limit_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "find_places", dict)

    found = sandbox.probe.__wrapped__()

    assert any("for each process, not for all" in remark for remark in found.remarks)
    assert ("process_count" in found.missing) == (os.getuid() == 0)


@pytest.mark.parametrize(("machine", "header"), [("x86_64", "x86_64-linux-gnu/asm/unistd_64.h")])
def test_the_numbers_of_calls_are_those_of_the_system(machine: str, header: str) -> None:
    path = Path("/usr/include") / header
    if not path.exists():
        pytest.skip("the headers of the kernel are not installed")

    real = {
        name: int(number) for name, number in re.findall(r"__NR_(\w+)\s+(\d+)", path.read_text())
    }

    known = {name: number for name, number in NUMBERS[machine].items() if name in real}
    assert len(known) > 90
    assert known == {name: real[name] for name in known}


@pytest.mark.parametrize("machine", NUMBERS)
def test_a_filter_can_be_made_for_every_machine_and_names_calls_that_exist(machine: str) -> None:
    program = seccomp.sandbox_filter(machine, has_private_view=False)

    assert len(program) % 8 == 0
    assert 100 < len(program) // 8 < 4096
    lists = (seccomp.REFUSED, seccomp.ABSENT, seccomp.ATTRIBUTES, seccomp.MODES_AND_TIMES)
    assert not set(" ".join(lists).split()) - set(NUMBERS["x86_64"])


@enforced
def test_calls_that_are_newer_than_the_filter_do_not_exist(world: World) -> None:
    code = f"import ctypes; l = ctypes.CDLL(None, use_errno=True); l.syscall({HIGHEST_KNOWN + 1});"
    code += "print(ctypes.get_errno())"

    run = world.run([world.python, "-c", code], world.rules(has_private_view=False))

    assert run.stdout == "38\n", run.stderr


@enforced
@pytest.mark.parametrize("version", range(1, 8))
def test_files_are_out_of_reach_with_every_version_of_landlock(version: int, world: World) -> None:
    rules = dataclasses.asdict(world.rules(has_private_view=False))
    code = f"""
import sys
sys.path.insert(0, {str(world.folder / "source/inside")!r})
from cold_start import load_runtime_package
load_runtime_package()
from taskweaver_inside.sandbox import landlock, restrict, rules
landlock.version = lambda: min({version}, {landlock.version()})
restrict.restrict(rules.Rules.from_json({rules!r}))
open("allowed", "w").close()
try:
    open({str(world.folder / "outside/secret")!r})
except PermissionError:
    print("refused")
"""

    run = world.run([world.python, "-c", code])

    assert run.stdout == "refused\n", run.stderr


@enforced
@pytest.mark.parametrize("what", ["restrict(rules.Rules('/', '/'))", "guard()"])
def test_a_process_with_threads_is_not_restricted_in_part(what: str, world: World) -> None:
    code = f"""
import sys, threading
sys.path.insert(0, {str(world.folder / "source/inside")!r})
from cold_start import load_runtime_package
load_runtime_package()
from taskweaver_inside.sandbox import restrict, rules
threading.Thread(target=threading.Event().wait, daemon=True).start()
restrict.{what}
"""

    run = world.run([world.python, "-c", code])

    assert "a process that has threads cannot be restricted" in run.stderr


@enforced
def test_a_program_that_cannot_be_restricted_does_not_run(world: World) -> None:
    rules = dataclasses.replace(
        world.rules(has_private_view=False), group_files=(str(world.folder / "no/such/group"),)
    )

    run = world.run(["touch", "it_ran"], rules)

    assert run.returncode == 126
    assert "cannot start touch" in run.stderr
    assert not (world.working_folder / "it_ran").exists()


@enforced
@private_view
def test_a_folder_that_is_only_readable_cannot_be_changed_within_the_working_folder(
    world: World,
) -> None:
    inner = world.working_folder / "installed"
    inner.mkdir()
    (inner / "module.py").touch()
    rules = world.rules(has_private_view=True)
    rules = dataclasses.replace(rules, readable=(*rules.readable, str(inner)))

    script = "cat installed/module.py && ! touch installed/x && ! mv installed other && echo held"
    run = world.run(["bash", "-c", script], rules)

    assert run.stdout == "held\n", run.stderr


@enforced
@private_view
def test_of_etc_there_is_what_all_may_read_and_nothing_else(users_world: World) -> None:
    command = "cat /etc/passwd; cat /etc/mime.types; ls -A /etc; ! touch /etc/passwd"

    run = users_world.run(["sh", "-c", command], users_world.rules(has_private_view=True))

    files = [Path("/etc/passwd"), Path("/etc/mime.types")]
    expected = "".join(path.read_text() for path in files if path.exists())
    assert run.stdout.startswith(expected), run.stderr
    names = set(run.stdout[len(expected) :].split())
    allowed = users_world.rules(has_private_view=True).readable
    assert names == {path.split("/")[2] for path in allowed if path.startswith("/etc/")}
    assert "shadow" not in names


@enforced
@private_view
def test_small_files_that_all_may_read_are_copied_into_a_view(users_world: World) -> None:
    contents = {"public": "1", "closed": "2", "large": "3" * (1 << 20), "folder/inner": "4"}
    code = f"""
import json, os, sys
sys.path.insert(0, {str(users_world.folder / "source/inside")!r})
from cold_start import load_runtime_package
load_runtime_package()
from taskweaver_inside.sandbox import private_view, restrict, rules
private_view.ETC = sys.argv[1]
restrict.restrict(rules.Rules.from_json(json.loads(sys.argv[2])))
found = {{}}
for name in {list(contents)!r}:
    path = os.path.join(sys.argv[1], name)
    try:
        with open(path) as file:
            found[name] = file.read()
        open(path, "a")
        found[name] = "written"
    except OSError as error:
        found.setdefault(name, type(error).__name__)
devices = [os.stat(os.path.join(sys.argv[1], name)).st_dev for name in ("public", "large")]
print(json.dumps([found, *devices]))
"""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # of `/tmp` a view has its own
        etc = Path(folder)
        etc.chmod(0o755)
        (etc / "folder").mkdir()
        for name, content in contents.items():
            (etc / name).write_text(content)
        (etc / "closed").chmod(0o600)
        if os.getuid() == 0:  # it takes rights that were given up to read another user's
            os.chown(etc / "closed", 1, 1)
        rules = users_world.rules(has_private_view=True)
        readable = (*rules.readable, *map(str, etc.iterdir()))
        described = json.dumps(dataclasses.asdict(dataclasses.replace(rules, readable=readable)))
        run = users_world.run([users_world.python, "-c", code, str(etc), described])
        on_disk = etc.stat().st_dev

    found, public, large = json.loads(run.stdout)
    expected = "PermissionError" if os.getuid() == 0 else contents["closed"]
    assert found == {**contents, "closed": expected}
    assert large == on_disk != public


def test_processor_time_is_limited(world: World) -> None:
    code = "import time\nwhile time.process_time() < 1.5: pass\nprint('done')"
    rules = dataclasses.replace(world.rules(has_private_view=False), cpu_seconds=1)

    free = world.run([world.python, "-c", code])
    limited = world.run([world.python, "-c", code], rules)

    assert free.stdout == "done\n"
    assert limited.returncode == -signal.SIGKILL


@enforced
@pytest.mark.skipif("memory" not in sandbox.probe().group_places, reason="not on this machine")
def test_memory_is_limited_for_all_processes_together(world: World) -> None:
    code = """
import os, signal
children = []
for _ in range(4):
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        data = bytearray(100 << 20)
        data[::4096] = b"x" * len(data[::4096])
        os.write(sender, b"x")
        signal.pause()
    os.close(sender)
    children.append(child)
    os.read(receiver, 1)
alive = [os.waitpid(child, os.WNOHANG)[0] == 0 for child in children]
print(all(alive))
for child, is_alive in zip(children, alive):
    if is_alive:
        os.kill(child, 9)
        os.waitpid(child, 0)
"""
    rules = dataclasses.replace(world.rules(has_private_view=False), memory_bytes=200 << 20)

    free = world.run([world.python, "-c", code], rules)  # each of them is within its limit
    with limited_group({"memory": 200 << 20}) as group:
        rules = dataclasses.replace(rules, group_files=group.files)
        limited = world.run([world.python, "-c", code], rules)

    assert free.stdout == "True\n"
    assert limited.stdout == "False\n", limited


@pytest.mark.skipif("pids" not in sandbox.probe().group_places, reason="not on this machine")
def test_a_group_ends_with_all_that_is_in_it(world: World) -> None:
    with limited_group({"pids": 50, "memory": 1 << 30}) as group:
        files = group.files
        rules = dataclasses.replace(world.rules(has_private_view=False), group_files=files)
        run = world.run(["bash", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $!"], rules)
        assert Path(f"/proc/{run.stdout.strip()}").exists()
        assert all(Path(file).exists() for file in files)

    assert not any(Path(file).exists() for file in files)
    with contextlib.suppress(FileNotFoundError):  # it ends before its parent has noticed
        assert Path(f"/proc/{run.stdout.strip()}/stat").read_text().split()[2] in "ZX"


@pytest.mark.skipif("pids" not in sandbox.probe().group_places, reason="not on this machine")
def test_nothing_joins_a_group_that_has_ended() -> None:
    with limited_group({"pids": 50}) as group:
        pass  # not even made

    with pytest.raises(OSError, match="has been removed"):
        group.add(os.getpid())


@pytest.mark.skipif("pids" not in sandbox.probe().group_places, reason="not on this machine")
def test_a_group_that_cannot_be_made_leaves_nothing() -> None:
    folder = sandbox.probe().group_places["pids"].folder

    with limited_group({"pids": -2}) as group, pytest.raises(OSError, match="Invalid argument"):
        group.add(os.getpid())

    assert list(folder.glob(f"taskweaver-{os.getpid()}-*")) == []


GUARDED = """
    read_an_environment read_an_environment_of_a_thread read_a_memory_map read_memory_by_file
    write_memory_by_file read_through_the_root_of_another read_through_the_folder_of_another
    read_through_a_descriptor_of_another trace seize read_memory write_memory take_a_descriptor
    send_a_signal send_a_signal_to_a_group send_a_signal_to_a_thread send_a_signal_by_descriptor
    queue_a_signal limit_another run_a_setuid_program
    """.split()
UNTOUCHED = """
    read_a_file create_a_file move_a_file_out move_a_file_in read_through_a_hard_link remove_a_file
    change_a_mode change_times connect_by_tcp listen_by_tcp send_by_udp
    connect_to_a_socket_of_an_agent connect_to_an_abstract_socket ask_the_kernel_by_netlink
    read_shared_memory run_a_program_from_memory become_root_in_a_namespace fork_many_times
    """.split()


@enforced
def test_a_guard_protects_processes_and_nothing_else(users_world: World) -> None:
    free = users_world.try_to_escape(None)
    guarded = users_world.try_to_escape("guard")

    assert {name for name in GUARDED if guarded[name] == "done"} == set()
    assert {name for name in GUARDED if free[name] != "done"} <= {"run_a_setuid_program"}
    assert {name: guarded[name] for name in UNTOUCHED} == dict.fromkeys(UNTOUCHED, "done")


def test_what_we_start_cannot_read_our_environment(users_world: World) -> None:
    inside = str(users_world.folder / "source/inside")
    code = f"""
import os, subprocess, sys
sys.path.insert(0, {inside!r})
from cold_start import load_runtime_package
load_runtime_package()
from taskweaver_inside.sandbox.privileges import hide_memory
if sys.argv[1] == "hidden":
    hide_memory()
subprocess.run(["cat", f"/proc/{{os.getpid()}}/environ"])
"""

    shown, hidden = (
        users_world.run([users_world.python, "-c", code, how]) for how in ("shown", "hidden")
    )

    assert "LANG" in shown.stdout
    assert ("LANG" in hidden.stdout) == (users_world.user == 0)


def test_restricting_a_process_takes_little_time(world: World) -> None:
    code = f"""
import sys, time
sys.path.insert(0, {str(world.folder / "source/inside")!r})
from cold_start import load_runtime_package
load_runtime_package()
from taskweaver_inside.sandbox import restrict, rules
began = time.process_time()
restrict.restrict(rules.Rules.from_json(RULES))
print(time.process_time() - began)
"""
    for has_private_view in {False, sandbox.probe().has_private_view}:
        rules = dataclasses.asdict(world.rules(has_private_view=has_private_view))
        runs = [
            world.run([world.python, "-c", code.replace("RULES", repr(rules))]) for _ in range(3)
        ]

        assert min(float(run.stdout) for run in runs) < 0.05
