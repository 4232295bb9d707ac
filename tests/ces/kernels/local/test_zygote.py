"""A kernel forked from a zygote cannot be told from one that was started cold."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from scripts.campaigns import killed_owners
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.kernels.client.host import StartedKernel
from taskweaver_ext.ces.kernels.local import host as local
from taskweaver_ext.ces.kernels.local.spares import SpareKernels
from taskweaver_ext.ces.kernels.local.zygote import Zygote
from taskweaver_ext.ces.kernels.modes import (
    KERNEL_MODES,
    EnvMode,
    KernelSourceSettings,
    LocalKernels,
)
from taskweaver_ext.errors import KernelStartError
from tests.support.executions import has_ended, kernel_pid, run, wait_until

BEHAVIOURS = {
    # What a process has from its start.
    "signals": """
import signal
[(int(n), str(signal.getsignal(n))) for n in signal.valid_signals() if n != signal.SIGINT]""",
    "signal masks": """
import pathlib
[line for task in pathlib.Path("/proc/self/task").iterdir()
 for line in (task / "status").read_text().splitlines() if line.startswith("SigBlk")]""",
    "signals ignored and caught": """
[line for line in open("/proc/self/status") if line.startswith(("SigIgn", "SigCgt"))]""",
    "process group": "import os; os.getpgid(0) == os.getpid() == os.getsid(0)",
    "arguments": "import sys; sys.argv, len(sys.orig_argv), sys.executable",
    "path": "import sys; sys.path, sys.path_hooks, sys.meta_path, sys.warnoptions",
    "modules of ours": "import sys; [m for m in sys.modules if m.startswith(('cold', 'zygote'))]",
    "main module": """
import sys
main = sys.modules["__main__"]
__name__, main.__dict__ is globals(), main, hasattr(main, "__file__"), __spec__, __builtins__""",
    "garbage collection": "import gc; gc.isenabled(), gc.get_threshold(), gc.callbacks",
    "working directory": "import os; os.path.basename(os.getcwd())",
    "environment": "import os; sorted(n for n in os.environ if not n.startswith('JPY'))",
    "umask": "import os; m = os.umask(0); os.umask(m); m",
    "priority": "import os; os.nice(0), sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0)",
    "limits": """
import resource
[(n, resource.getrlimit(getattr(resource, n))) for n in dir(resource)
 if n.startswith("RLIMIT") and n != "RLIMIT_RTTIME"]""",
    "main thread": """
import os, threading
main = threading.main_thread()
threading.current_thread() is main, main.name, main.native_id == os.getpid()""",
    "other threads": "import threading; sorted(t.name for t in threading.enumerate())",
    "descriptors": """
import os
def kind(n): return os.path.basename(os.readlink(f"/proc/self/fd/{n}")).partition(":")[0]
sorted(kind(n) for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}"))""",
    "locale": "import locale; locale.setlocale(locale.LC_ALL), locale.getpreferredencoding()",
    "time zone": "import time; time.tzname, time.localtime(0)[:5]",
    "flags": "import sys; sys.flags, sys.getrecursionlimit(), sys.getswitchinterval()",
    "hooks": """
import sys, threading
[getattr(h, "__qualname__", type(h)) for h in (sys.excepthook, sys.displayhook, sys.unraisablehook,
 sys.breakpointhook, threading.excepthook, sys.gettrace(), sys.getprofile())]""",
    "faults": "import faulthandler; faulthandler.is_enabled()",
    "exit handlers": "import atexit; atexit._ncallbacks()",
    "filters of warnings": "import warnings; warnings.filters",
    "handlers of logging": "import logging; logging.root.handlers, logging.root.level",
    "contexts": "import contextvars; len(contextvars.copy_context())",
    "large integers": "import sys; sys.get_int_max_str_digits()",
    "core dumps": "import resource; resource.getrlimit(resource.RLIMIT_CORE)",
    "memory tracing": "import tracemalloc; tracemalloc.is_tracing()",
    # What code does with it.
    "asyncio": "import asyncio\nawait asyncio.sleep(0, type(asyncio.get_running_loop()).__name__)",
    "asyncio tasks": "len(asyncio.all_tasks()), await asyncio.gather(asyncio.sleep(0, 1))",
    "asyncio subprocess": """
import asyncio
p = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
(await p.communicate())[0]""",
    "loop within a loop": """
sleep = asyncio.sleep(0)
try: asyncio.run(sleep)
finally: sleep.close()""",
    "subprocess": "import subprocess; subprocess.run(['sh', '-c', 'echo x; cat; exit 3'])",
    "shell": "!echo out; echo err >&2; exit 3\n_exit_code",
    "multiprocessing": """
import multiprocessing
multiprocessing.get_start_method(), multiprocessing.current_process()""",
    "multiprocessing fork": """
with multiprocessing.get_context("fork").Pool(2) as pool: r = pool.map(abs, [-1, -2])
r""",
    "multiprocessing spawn": """
with multiprocessing.get_context("spawn").Pool(1) as pool: r = pool.map(abs, [-1, -2])
r""",
    "multiprocessing forkserver": """
with multiprocessing.get_context("forkserver").Pool(1) as pool: r = pool.map(abs, [-1, -2])
r""",
    "multiprocessing manager": """
with multiprocessing.Manager() as manager: r = list(manager.list([1, 2]))
r""",
    "shared memory": """
from multiprocessing import shared_memory
memory = shared_memory.SharedMemory(create=True, size=8)
def fill(): shared_memory.SharedMemory(memory.name).buf[0] = 7
p = multiprocessing.get_context("fork").Process(target=fill); p.start(); p.join()
filled = memory.buf[0]; memory.close(); memory.unlink()
filled, p.exitcode""",
    "process pool": """
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(1) as pool: r = list(pool.map(abs, [-3]))
r""",
    "child processes that end": """
import ctypes, os, sys
def end_of(way):
    child = os.fork()
    if not child:
        print("child", flush=True); way()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
[end_of(w) for w in (lambda: os._exit(3), os.abort, lambda: ctypes.string_at(0),
                     lambda: os.execvp("true", ["true"]), lambda: os.kill(os.getpid(), 9))]""",
    "a child that exits": """
if not (child := os.fork()): sys.exit(4)
os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])""",
    "a child that asks": """
if not (child := os.fork()): input("?")
os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])""",
    "threads": """
import threading
seen = []
ts = [threading.Thread(target=seen.append, args=(i,)) for i in range(3)]
[t.start() for t in ts]; [t.join() for t in ts]
sorted(seen)""",
    "a thread that fails": "t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()",
    "alarms": """
import signal, time
signal.signal(signal.SIGALRM, lambda *_: print("alarm")); signal.setitimer(signal.ITIMER_REAL, 0.01)
time.sleep(0.05); signal.signal(signal.SIGALRM, signal.SIG_DFL).__name__""",
    "broken pipes": "r, w = os.pipe(); os.close(r); os.write(w, b'x')",
    "matplotlib": "import matplotlib; matplotlib.get_backend()",
    "a figure": "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.gcf().number",
    "pickling": """
import dataclasses, pickle, typing
@dataclasses.dataclass
class Pair: left: int; right: "Pair | None" = None
pickle.loads(pickle.dumps(Pair(1))), typing.get_type_hints(Pair), Pair.__module__""",
    "source": "import inspect\ndef f(): pass\nprint(inspect.getsource(f), inspect.getfile(f))",
    "deep recursion": """
def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
sys.setrecursionlimit(20_000); d = depth(15_000); sys.setrecursionlimit(1000)
d""",
    "finalizers": """
import gc, weakref
class Node:
    def __del__(self): print("deleted")
node = Node(); node.itself = node; weakref.finalize(node, print, "finalized")
del node; gc.collect(); None""",
    "a finalizer that fails": """
class Failing:
    def __del__(self): 1 / 0
Failing(); None""",
    "warnings": "import warnings; warnings.warn('w'); warnings.warn('d', DeprecationWarning)",
    "logging": "import logging; logging.getLogger('x').warning('w'); logging.error('e')",
    "standard input": "sys.stdin.read(), sys.stdin.isatty(), sys.stdin.fileno()",
    "no input": "input('?')",
    "an error": "1 / 0",
    "an error in awaiting code": "await asyncio.sleep(0); 1 / 0",
    "a syntax error": "x = = 1",
    "leaving": "sys.exit(5)",
    "magics": "%pwd\n%who_ls int\n%time pass\n%timeit -n1 -r1 pass\n%env HOME",
    "cell magics": "%%bash\necho out; echo err >&2",
    "capturing": "%%capture captured\nprint('x'); display('y')",
    "captured": """
get_ipython().run_cell_magic("capture", "captured", "print('x'); display('y')")
captured.stdout, len(captured.outputs)""",
    "displays": "from IPython.display import HTML; display(HTML('<b>x</b>'), {'a': 1}); 'value'",
    "history": "len(In) > 1, type(Out).__name__, _, __name__",
    "rich": "import rich; rich.print({'a': [1, 'x']})",
    "numpy": "import numpy; numpy.random.seed(1); numpy.random.rand(2), numpy.show_config",
    "memory": """
import resource
resource.setrlimit(resource.RLIMIT_DATA, (1 << 29, resource.RLIM_INFINITY))
try: bytearray(1 << 30)
except MemoryError as e: print(repr(e))
finally: resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY,) * 2)""",
}

DEATHS = {
    "os._exit": "import os; print('last'); os._exit(3)",
    "abort": "import os; print('last'); os.abort()",
    "SIGKILL": "import os; print('last'); os.kill(os.getpid(), 9)",
    "SIGSEGV": "import ctypes, faulthandler as f; f.enable(); print('last'); ctypes.string_at(0)",
}

DIFFER_BETWEEN_KERNELS = {
    "random": "import random; random.random()",
    "uuid": "import uuid; uuid.uuid4()",
    "temporary names": "import tempfile; tempfile.mktemp()",
    "secrets": "import secrets; secrets.token_hex()",
}


@pytest.fixture(scope="module")
def warm_and_cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Environment]]:
    folder = tmp_path_factory.mktemp("zygote")
    with (
        Environment(folder / "warm") as warm,
        Environment(folder / "cold", warm_start=False) as cold,
    ):
        for environment in (warm, cold):
            environment.start_session("s1")
            # What several of the codes use; and what stays for as long as its kernel once
            # something is spawned.
            start = """
import asyncio, multiprocessing, os, sys, threading
from multiprocessing import forkserver, resource_tracker
resource_tracker.ensure_running(); forkserver.ensure_running()"""
            environment.execute_code("s1", start)
        warm.start_session("s2")
        yield [warm, cold]


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_forked_kernel_behaves_as_a_cold_one(warm_and_cold: list[Environment], name: str) -> None:
    warm, cold = (_seen(environment, BEHAVIOURS[name]) for environment in warm_and_cold)

    assert warm == cold
    assert "NameError" not in str(warm["error"])  # each can be run by itself


def test_a_forked_kernel_dies_as_a_cold_one(tmp_path: Path) -> None:
    with (
        Environment(tmp_path / "warm", max_deaths_in_a_row=len(DEATHS) + 1) as warm_environment,
        Environment(
            tmp_path / "cold", max_deaths_in_a_row=len(DEATHS) + 1, warm_start=False
        ) as cold_environment,
    ):
        for environment in (warm_environment, cold_environment):
            environment.start_session("s1")
        for code in DEATHS.values():
            warm, cold = (_seen(e, code) for e in (warm_environment, cold_environment))

            for seen in (warm, cold):  # where threads just were is an accident
                seen["stderr"] = str(seen["stderr"]).partition("\n")[0]
            assert warm == cold
            assert warm["death"]
            assert warm["stdout"] == "last\n"


def _seen(environment: Environment, code: str) -> dict[str, object]:
    """All that can be seen of an execution, without what differs between any two kernels."""
    heard = run(environment, code)
    result = heard.result
    return {
        "status": result.status.value.replace("success", ""),
        "output": _without_accidents(result.output),
        "stdout": _without_accidents(heard.text()),
        "stderr": _without_accidents(heard.text("stderr")),
        "error": _without_accidents(result.error or ""),
        "exit code": result.exit_code,
        "death": result.death and result.death.detail,
        "displays": [sorted(display.bundle) for display in result.displays],
    }


def _without_accidents(text: str) -> str:
    """Leave out addresses, process ids, folders and durations."""
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    text = re.sub(r"ipykernel_\d+", "ipykernel", text)
    text = re.sub(r"/zygote\d+/(warm|cold)", "", text)
    return re.sub(r"[\d.]+ [nμm]?s\b", "time", text)


@pytest.mark.parametrize("name", DIFFER_BETWEEN_KERNELS)
def test_forked_kernels_do_not_draw_the_same_numbers(
    warm_and_cold: list[Environment], name: str
) -> None:
    warm, _ = warm_and_cold
    first, second = (
        run(warm, DIFFER_BETWEEN_KERNELS[name], session=s).result for s in ("s1", "s2")
    )

    assert first.output != second.output


def test_a_zygote_that_died_is_started_again(tmp_path: Path) -> None:
    with Environment(tmp_path) as environment:
        environment.start_session("s1")
        zygote = psutil.Process(kernel_pid(environment)).parent()
        assert zygote is not None
        assert zygote.ppid() == os.getpid()
        zygote.kill()

        assert run(environment, "print('unharmed')").text() == "unharmed\n"
        environment.start_session("s2")

        heard = run(environment, "print('warm')", session="s2")
        parent = psutil.Process(kernel_pid(environment, "s2")).parent()
        assert heard.text() == "warm\n"
        assert parent is not None
        assert parent.ppid() == os.getpid()


def test_a_zygote_that_hangs_keeps_nobody_waiting_and_costs_no_kernel(tmp_path: Path) -> None:
    with Environment(tmp_path) as environment:
        for session in ("s1", "s2"):
            environment.start_session(session)
        environment.execute_code("s2", "kept = 1")
        zygote = psutil.Process(kernel_pid(environment)).parent()
        assert zygote is not None
        zygote.suspend()

        result = run(environment, "import os; os._exit(3)").result

        assert result.death is not None
        assert result.death.exit_code == 3
        assert run(environment, "print('fresh')").text() == "fresh\n"
        assert environment.execute_code("s2", "kept").output == "1"


def test_ctrl_c_in_the_middle_of_a_start_costs_no_other_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Environment(tmp_path) as environment:
        environment.start_session("s1")
        environment.execute_code("s1", "kept = 1")
        with monkeypatch.context() as patched:
            patched.setattr(Zygote, "_read", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                environment.start_session("s2")

        environment.start_session("s2")

        assert environment.execute_code("s1", "kept").output == "1"


def test_a_kernel_whose_start_was_not_heard_of_is_turned_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask: Any = Zygote._ask
    forked: list[int] = []

    def lose_the_first_reply(zygote: Zygote, request: dict[str, object], seconds: float) -> object:
        reply = ask(zygote, request, seconds)
        if "pid" in reply:
            forked.append(pid := reply["pid"])
            if len(forked) == 1:
                wait_until(lambda: os.getsid(pid) == pid)  # it goes its own way by now
                zygote._give_up()
                raise ConnectionError("it has ended")
        return reply

    monkeypatch.setattr(Zygote, "_ask", lose_the_first_reply)
    with Environment(tmp_path) as environment:
        environment.start_session("s1")

        unheard, kernel = forked
        wait_until(lambda: has_ended(unheard))
        assert kernel_pid(environment) == kernel


def test_settings_that_act_at_interpreter_start_get_a_zygote_of_their_own(tmp_path: Path) -> None:
    with Environment(tmp_path, env={"PYTHONHASHSEED": "7"}) as environment:
        environment.start_session("s1")

        first = environment.execute_code("s1", "hash('a')").output
        environment.restart_session("s1")

        assert environment.execute_code("s1", "hash('a')").output == first


def test_folders_that_the_environment_names_are_not_those_of_an_earlier_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "looking.py").write_text("import tempfile; tempfile.gettempdir()")
    variables = {"PYTHONPATH": str(tmp_path)}
    with Environment(tmp_path / "env", preload=["looking"], env=variables) as environment:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        environment.start_session("s1")

        found = environment.execute_code("s1", "import tempfile; tempfile.gettempdir()").output

    assert found == repr(str(tmp_path))


def test_preloaded_modules_are_there_and_behave(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    preload = ["numpy", "matplotlib.pyplot", "no_such_module"]
    with Environment(tmp_path, preload=preload) as environment:
        for session in ("s1", "s2"):
            environment.start_session(session)

        loaded = "import sys; [name in sys.modules for name in ('numpy', 'matplotlib.pyplot')]"
        assert environment.execute_code("s1", loaded).output == "[True, True]"
        draw = "import numpy; numpy.random.rand()"
        drawn = {environment.execute_code(session, draw).output for session in ("s1", "s2")}
        assert len(drawn) == 2
        figure = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()"
        (display,) = environment.execute_code("s1", figure).displays
        assert "image/png" in display.bundle

    assert "no_such_module could not be imported: ModuleNotFoundError" in caplog.text


def test_a_preloaded_module_finds_a_kernel_as_it_would_in_one(tmp_path: Path) -> None:
    (tmp_path / "looking.py").write_text("is_in_kernel = hasattr(get_ipython(), 'kernel')")
    variables = {"PYTHONPATH": str(tmp_path)}
    with Environment(tmp_path / "env", preload=["looking"], env=variables) as environment:
        environment.start_session("s1")

        loaded = environment.execute_code("s1", "import sys; 'looking' in sys.modules").output
        seen = "import looking; looking.is_in_kernel, get_ipython().kernel is not None"
        assert loaded == "True"
        assert environment.execute_code("s1", seen).output == "(True, True)"


def test_a_preload_that_starts_a_thread_does_not_become_part_of_kernels(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    variables = {"PYTHONPATH": str(tmp_path)}
    with Environment(tmp_path / "env", preload=["threaded"], env=variables) as environment:
        environment.start_session("s1")
        loaded = environment.execute_code("s1", "import sys; 'threaded' in sys.modules").output
        environment.restart_session("s1")
        parent = psutil.Process(kernel_pid(environment)).ppid()

    assert loaded == "False"
    assert parent == os.getpid()  # started the ordinary way
    assert caplog.text.count("a preloaded module started a thread") == 1


def test_a_zygote_has_one_thread(tmp_path: Path) -> None:
    with Environment(tmp_path) as environment:
        environment.start_session("s1")
        zygote = psutil.Process(kernel_pid(environment)).parent()

        assert zygote is not None
        assert zygote.num_threads() == 1


def test_a_kernel_that_fails_to_start_says_why(tmp_path: Path) -> None:
    with (
        Environment(tmp_path, memory_limit=1 << 20) as environment,
        pytest.raises(KernelStartError, match="did not start"),
    ):
        environment.start_session("s1")


def test_sockets_lie_elsewhere_where_the_usual_folder_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SHORT_FOLDER", tmp_path / "missing")
    with Environment(tmp_path / "env") as environment:
        with tempfile.TemporaryDirectory(dir="/tmp") as short:
            monkeypatch.setattr(tempfile, "tempdir", short)
            environment.start_session("s1")
            lies_in = next(Path(short).iterdir())
            assert (lies_in / "connection.json").exists()
            environment.stop_session("s1")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 75)))
        with pytest.raises(KernelStartError, match="TMPDIR"):
            environment.start_session("s1")


def test_nothing_of_a_dead_zygote_is_left(tmp_path: Path) -> None:
    with Environment(tmp_path) as environment:
        environment.start_session("s1")
        kernel = kernel_pid(environment)
        zygote = psutil.Process(kernel).ppid()

    wait_until(lambda: not psutil.pid_exists(zygote) and not psutil.pid_exists(kernel))
    assert not psutil.pid_exists(kernel)


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[LocalKernels]:
    """The sources of local kernels that environments open from now on."""
    opened: list[LocalKernels] = []

    def open_source(settings: KernelSourceSettings) -> LocalKernels:
        opened.append(LocalKernels(settings))
        return opened[-1]

    watched = replace(KERNEL_MODES[EnvMode.Local], open_source=open_source)
    monkeypatch.setitem(KERNEL_MODES, EnvMode.Local, watched)
    return opened


def test_a_spare_kernel_becomes_its_sessions_own(
    tmp_path: Path, sources: list[LocalKernels]
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "helper.py").write_text("answer = 42")
    with Environment(tmp_path / "env", spare_kernels=1) as environment:
        spares = sources[0].spares
        assert spares is not None
        wait_until(lambda: len(spares.ready) == 1)
        spare = spares.ready[0].host
        environment.start_session("s1", cwd=tmp_path / "work")

        heard = run(environment, "import os, helper; print(os.getcwd(), helper.answer)")

        assert kernel_pid(environment) == spare.pid
        assert heard.text() == f"{tmp_path / 'work'} 42\n"
        wait_until(lambda: len(spares.ready) == 1)  # the next is at hand


def test_a_spare_kernel_that_died_is_not_given_out(
    tmp_path: Path, sources: list[LocalKernels]
) -> None:
    with Environment(tmp_path / "env", spare_kernels=1) as environment:
        spares = sources[0].spares
        assert spares is not None
        wait_until(lambda: len(spares.ready) == 1)
        spare = spares.ready[0].host
        psutil.Process(spare.pid).kill()
        wait_until(lambda: spare.death() is not None)
        environment.start_session("s1")

        assert run(environment, "print('alive')").text() == "alive\n"


def test_a_spare_that_did_not_start_is_tried_again_when_a_kernel_is_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = LocalKernels(KernelSourceSettings(env_id="env", env_dir=tmp_path))
    failures = [OSError(errno.EMFILE, "Too many open files")]

    def fail_once() -> StartedKernel:
        if failures:
            raise failures.pop()
        return source.start("s1", tmp_path)

    spares = SpareKernels(1, fail_once)
    wait_until(lambda: "no spare kernel" in caplog.text)
    assert spares.claim() is None

    wait_until(lambda: spares.ready)
    spares.close()
    source.close()


def test_a_kernel_has_what_a_process_started_now_would_have(tmp_path: Path) -> None:
    look = """
import os, resource, time
umask = os.umask(0); os.umask(umask)
umask, os.nice(0), resource.getrlimit(resource.RLIMIT_NOFILE)[0], time.tzname[0]
"""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Environment(tmp_path) as environment:  # its zygote has started
        before = os.umask(0o077)
        resource.setrlimit(resource.RLIMIT_NOFILE, (999, limit[1]))
        try:
            environment.start_session("s1")
        finally:
            os.umask(before)
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)

        output = environment.execute_code("s1", look).output

    assert output == str((0o077, os.nice(0), 999, time.tzname[0]))


def test_the_time_zone_of_the_environment_applies(tmp_path: Path) -> None:
    with Environment(tmp_path, env={"TZ": "UTC-7"}) as environment:
        environment.start_session("s1")

        assert (
            environment.execute_code("s1", "import time; time.localtime(0).tm_hour").output == "7"
        )


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_kernel_started_by_a_thread_that_blocks_signals_is_interrupted(
    tmp_path: Path, is_warm: bool
) -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        with Environment(tmp_path, warm_start=is_warm) as environment:
            environment.start_session("s1")

            heard = run(
                environment,
                "print('go'); import time; time.sleep(1000)",
                on_output=lambda *_: environment.interrupt("s1"),
                timeout=20,
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    assert heard.result.status is ExecutionStatus.CANCELLED


def test_a_zygote_ends_while_it_still_imports(tmp_path: Path) -> None:
    (tmp_path / "never_imported.py").write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path)!r}, 'began').touch()\ntime.sleep(1000)"
    )
    variables = {"PYTHONPATH": str(tmp_path)}
    others = set(psutil.Process().children())
    with Environment(tmp_path, preload=["never_imported"], env=variables) as environment:
        (zygote,) = set(psutil.Process().children()) - others
        wait_until((tmp_path / "began").exists)
        started = time.monotonic()
        environment.close()

    assert not zygote.is_running()
    assert time.monotonic() - started < 5  # not after the limit for one that does not answer


def test_nothing_outlives_an_owner_that_is_killed_at_any_moment() -> None:
    assert killed_owners.main(killed_owners.ROUNDS // 10, seed=7) == 0


def test_a_zygote_that_still_imports_does_not_outlive_its_owner(tmp_path: Path) -> None:
    (tmp_path / "never_imported.py").write_text("import time; time.sleep(1000)")
    program = f"""
import time
from taskweaver_ext.ces.environment import Environment
variables = {{"PYTHONPATH": {str(tmp_path)!r}}}
environment = Environment({str(tmp_path / "env")!r}, preload=["never_imported"], env=variables)
print("ready", flush=True)
time.sleep(1000)
"""
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        assert owner.stdout.readline() == "ready\n"
        children = psutil.Process(owner.pid).children(recursive=True)
        (zygote,) = (child for child in children if "zygote_main" in " ".join(child.cmdline()))
        owner.kill()
        owner.wait()

    wait_until(partial(has_ended, zygote.pid))
