"""A kernel forked from a zygote cannot be told from one that was started cold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.results import ExecutionStatus
from taskweaver_ext.errors import KernelStartError
from tests.support.executions import kernel_pid, run, wait_until

BEHAVIOURS = {
    "signals": """
import signal
[str(signal.getsignal(n)) for n in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)]""",
    "process group": "import os; os.getpgid(0) == os.getpid() == os.getsid(0)",
    "arguments": "import sys; len(sys.argv)",
    "path": "import sys; '' in sys.path, any('kernel_runtime' in p for p in sys.path)",
    "main module": "__name__, __import__('__main__').__dict__ is globals()",
    "garbage collection": "import gc; gc.isenabled()",
    "working directory": "import os; os.path.basename(os.getcwd())",
    "environment": "import os; sorted(n for n in os.environ if not n.startswith('JPY'))",
    "umask": "import os; m = os.umask(0); os.umask(m); m",
    "main thread": """
import threading
threading.current_thread() is threading.main_thread(), threading.main_thread().name""",
    "asyncio": "import asyncio\nawait asyncio.sleep(0, type(asyncio.get_running_loop()).__name__)",
    "asyncio subprocess": """
import asyncio
p = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
(await p.communicate())[0]""",
    "subprocess": "import subprocess; subprocess.check_output(['echo', 'x'])",
    "multiprocessing fork": """
import multiprocessing
with multiprocessing.get_context("fork").Pool(2) as pool: r = pool.map(abs, [-1, -2])
r""",
    "multiprocessing spawn": """
import multiprocessing
with multiprocessing.get_context("spawn").Pool(1) as pool: r = pool.map(abs, [-1, -2])
r""",
    "process pool": """
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(1) as pool: r = list(pool.map(abs, [-3]))
r""",
    "threads": """
import threading
seen = []
ts = [threading.Thread(target=seen.append, args=(i,)) for i in range(3)]
[t.start() for t in ts]; [t.join() for t in ts]
sorted(seen)""",
    "matplotlib": "import matplotlib; matplotlib.get_backend()",
    "core dumps": "import resource; resource.getrlimit(resource.RLIMIT_CORE)",
    "descriptors": "import os; len(os.listdir('/proc/self/fd')) < 60",
    "locale": "import locale; locale.getlocale()",
    "flags": "import sys; sys.flags.utf8_mode, sys.flags.hash_randomization, sys.executable",
    "faults": "import faulthandler; faulthandler.is_enabled()",
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
            # Stays for as long as its kernel once something is spawned.
            start = "from multiprocessing import resource_tracker as r; r.ensure_running()"
            environment.execute_code("s1", start)
        warm.start_session("s2")
        yield [warm, cold]


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_forked_kernel_behaves_as_a_cold_one(warm_and_cold: list[Environment], name: str) -> None:
    warm, cold = (run(e, BEHAVIOURS[name]).result for e in warm_and_cold)

    assert warm.status is cold.status is ExecutionStatus.SUCCESS, warm.error
    assert warm.output == cold.output != ""


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


def test_settings_that_act_at_interpreter_start_get_a_zygote_of_their_own(tmp_path: Path) -> None:
    with Environment(tmp_path, env={"PYTHONHASHSEED": "7"}) as environment:
        environment.start_session("s1")

        first = environment.execute_code("s1", "hash('a')").output
        environment.restart_session("s1")

        assert environment.execute_code("s1", "hash('a')").output == first


def test_preloaded_modules_are_there(tmp_path: Path) -> None:
    with Environment(tmp_path, preload=["xml.dom.minidom", "no_such_module"]) as environment:
        environment.start_session("s1")

        result = environment.execute_code("s1", "import sys; 'xml.dom.minidom' in sys.modules")

    assert result.output == "True"


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


def test_nothing_of_a_dead_zygote_is_left(tmp_path: Path) -> None:
    with Environment(tmp_path) as environment:
        environment.start_session("s1")
        kernel = kernel_pid(environment)
        zygote = psutil.Process(kernel).ppid()

    wait_until(lambda: not psutil.pid_exists(zygote) and not psutil.pid_exists(kernel), 10)
    assert not psutil.pid_exists(kernel)


def test_a_spare_kernel_becomes_its_sessions_own(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "helper.py").write_text("answer = 42")
    with Environment(tmp_path / "env", spare_kernels=1) as environment:
        assert environment._source.spares is not None
        ready = environment._source.spares._ready
        wait_until(lambda: len(ready) == 1)
        spare = ready[0].host
        environment.start_session("s1", cwd=tmp_path / "work")

        heard = run(environment, "import os, helper; print(os.getcwd(), helper.answer)")

        assert kernel_pid(environment) == spare.pid  # type: ignore[attr-defined]
        assert heard.text() == f"{tmp_path / 'work'} 42\n"
        wait_until(lambda: len(ready) == 1)  # the next is at hand


def test_a_spare_kernel_that_died_is_not_given_out(tmp_path: Path) -> None:
    with Environment(tmp_path / "env", spare_kernels=1) as environment:
        assert environment._source.spares is not None
        ready = environment._source.spares._ready
        wait_until(lambda: len(ready) == 1)
        spare = ready[0].host
        psutil.Process(spare.pid).kill()  # type: ignore[attr-defined]
        wait_until(lambda: spare.death() is not None)
        environment.start_session("s1")

        assert run(environment, "print('alive')").text() == "alive\n"
