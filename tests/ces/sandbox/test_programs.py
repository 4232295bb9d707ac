"""What ordinary programs do must still work in a sandbox."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import shutil
from collections.abc import Iterator

import pytest

from taskweaver_ext.ces.sandbox import sandbox
from tests.support.sandboxes import NOBODY, World, make_world

pytestmark = pytest.mark.skipif(
    bool(sandbox.probe().missing.keys() & {"files", "network", "processes"}),
    reason="this machine cannot enforce a sandbox",
)

PROGRAMS = {
    "write_and_read": "open('a', 'w').write('x'); assert open('a').read() == 'x'",
    "make_and_remove_folders": """
        import os, shutil
        os.makedirs('b/c'); open('b/c/d', 'w').close(); os.rename('b/c/d', 'b/d')
        shutil.rmtree('b')
        """,
    "link_files": """
        import os
        open('e', 'w').write('x'); os.link('e', 'f'); os.symlink('e', 'g'); os.mkdir('h')
        os.rename('f', 'h/f'); assert open('g').read() == open('h/f').read() == 'x'
        """,
    "copy_files": """
        import shutil
        open('i', 'w').write('x'); shutil.copy('i', 'j'); shutil.copy2('i', 'k')
        shutil.make_archive('archive', 'zip', '.', 'i')
        shutil.make_archive('archive', 'gztar', '.', 'i')
        shutil.unpack_archive('archive.tar.gz', 'unpacked'); assert open('unpacked/i').read() == 'x'
        """,
    "temporary_files": """
        import os, tempfile
        with tempfile.NamedTemporaryFile() as one, tempfile.TemporaryFile() as two:
            one.write(b'x'); two.write(b'x'); two.seek(0); assert two.read() == b'x'
        with tempfile.TemporaryDirectory() as folder: open(os.path.join(folder, 'x'), 'w').close()
        """,
    "standard_library": """
        import asyncio, csv, ctypes, curses, decimal, hashlib, html, http.client, inspect, json
        import locale, logging, lzma, pickle, platform, pydoc, ssl, sqlite3, unittest, uuid, zlib
        import email.message, concurrent.futures, xml.etree.ElementTree, urllib.request
        inspect.getsource(json); ssl.create_default_context(); platform.platform(); uuid.uuid4()
        """,
    "random_numbers": """
        import os, secrets
        os.urandom(8); secrets.token_hex(); open('/dev/urandom', 'rb').read(8)
        """,
    "devices": """
        open('/dev/null', 'w').write('x'); assert open('/dev/zero', 'rb').read(1) == b'\\0'
        """,
    "database": """
        import sqlite3
        with sqlite3.connect('data.db') as database:
            database.execute('pragma journal_mode=wal'); database.execute('create table t (a)')
            database.execute('insert into t values (1)')
            assert database.execute('select a from t').fetchall() == [(1,)]
        """,
    "threads": """
        import concurrent.futures, threading
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(int, '1234')) == 10
        """,
    "children": """
        import subprocess
        assert subprocess.check_output(['ls', '/usr'])
        subprocess.run('true | cat', shell=True, check=True)
        child = subprocess.Popen(['sleep', '60']); child.terminate(); assert child.wait() == -15
        """,
    "shell": """
        import subprocess
        script = 'set -e; cat <(echo a) | grep a; cat <<<b >/dev/null; [[ $(echo c | sort) == c ]]'
        subprocess.run(['bash', '-c', script + '; echo d >/dev/stderr; kill -0 $$'], check=True)
        """,
    "fork": """
        import os
        pid = os.fork(); pid or os._exit(3); assert os.waitpid(pid, 0)[1] == 3 << 8
        """,
    "processes_with_pipes": """
        import multiprocessing
        def work(pipe): pipe.send(1)
        if __name__ == '__main__':
            one, two = multiprocessing.Pipe()
            process = multiprocessing.get_context('fork').Process(target=work, args=(two,))
            process.start(); assert one.recv() == 1; process.join(); assert process.exitcode == 0
        """,
    "signals_to_oneself": """
        import os, signal
        seen = []; signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        os.kill(os.getpid(), signal.SIGUSR1); signal.setitimer(signal.ITIMER_REAL, 0.01)
        assert seen
        signal.signal(signal.SIGALRM, lambda *_: None); signal.pause()
        """,
    "events": """
        import asyncio
        async def work():
            child = await asyncio.create_subprocess_exec('echo', 'x', stdout=-1)
            assert await child.communicate() == (b'x\\n', None)
        asyncio.run(work())
        """,
    "memory_maps": """
        import mmap
        assert len(mmap.mmap(-1, 1 << 20)) == 1 << 20
        with open('map', 'w+b') as file:
            file.truncate(4096); mmap.mmap(file.fileno(), 0)[:1] = b'x'
        """,
    "about_the_machine": """
        import os, resource
        open('/proc/cpuinfo').read(); open('/proc/meminfo').read(); open('/proc/stat').read()
        os.cpu_count(); resource.getrusage(resource.RUSAGE_SELF); os.getloadavg()
        """,
    "users_and_zones": """
        import datetime, pwd, os, time, zoneinfo
        pwd.getpwuid(0); datetime.datetime.now(zoneinfo.ZoneInfo('Europe/Berlin')); time.tzset()
        os.path.expanduser('~/x'); open(os.path.expanduser('~/x'), 'w').close()
        """,
    "locale": "import locale; locale.setlocale(locale.LC_ALL, ''); assert 'ä'.encode()",
    "limits_of_oneself": """
        import os, resource
        resource.getrlimit(0); os.nice(1); os.sched_setaffinity(0, os.sched_getaffinity(0))
        """,
    "locks_on_files": """
        import fcntl
        with open('lock', 'w') as file:
            fcntl.flock(file, fcntl.LOCK_EX); fcntl.lockf(file, fcntl.LOCK_UN)
        """,
    "fifos": """
        import os
        os.mkfifo('fifo'); pid = os.fork()
        if pid == 0: open('fifo', 'w').write('x'); os._exit(0)
        assert open('fifo').read() == 'x'; os.waitpid(pid, 0)
        """,
    "pip": """
        import subprocess, sys
        subprocess.run([sys.executable, '-m', 'pip', '--version'], check=True)
        """,
    "compile": """
        import compileall, sys
        open('module.py', 'w').write('x = 1'); assert compileall.compile_file('module.py', quiet=1)
        sys.path.insert(0, '.'); import module; assert module.x == 1
        """,
    "git": """
        import subprocess
        if not __import__('shutil').which('git'): raise SystemExit
        run = lambda *words: subprocess.run(['git', *words], check=True, capture_output=True)
        run('init', '-q', 'repository'); open('repository/x', 'w').close()
        run('-C', 'repository', 'add', 'x')
        run('-C', 'repository', '-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', '-qm', 'x')
        """,
    "numpy": """
        import numpy
        a = numpy.random.rand(300, 300); assert (a @ a).shape == (300, 300); numpy.save('a.npy', a)
        numpy.load('a.npy', mmap_mode='r').sum()
        """,
    "messages": """
        import zmq
        with zmq.Context() as context, context.socket(zmq.PAIR) as one:
            one.bind('ipc://channel'); assert not one.poll(10)
        """,
    "matplotlib": """
        import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plot, os
        plot.plot([1, 2]); plot.title('t'); plot.savefig('p.png')
        assert os.path.getsize('p.png') > 1000
        """,
}

WITH_A_PRIVATE_VIEW = {
    "pool": """
        import multiprocessing
        if __name__ == '__main__':
            with multiprocessing.get_context('fork').Pool(2) as pool:
                assert pool.map(abs, [-1]) == [1]
        """,
    "pool_of_fresh_processes": """
        import multiprocessing
        if __name__ == '__main__':
            with multiprocessing.get_context('spawn').Pool(1) as pool:
                assert pool.map(abs, [-1]) == [1]
        """,
    "fork_server": """
        import multiprocessing
        if __name__ == '__main__':
            with multiprocessing.get_context('forkserver').Pool(1) as pool: pool.map(abs, [-1])
        """,
    "manager": """
        import multiprocessing
        if __name__ == '__main__':
            with multiprocessing.get_context('fork').Manager() as manager:
                assert not manager.dict()
        """,
    "shared_memory": """
        from multiprocessing import shared_memory
        memory = shared_memory.SharedMemory(create=True, size=100); memory.close(); memory.unlink()
        """,
    "modes_and_times": """
        import os, subprocess
        open('script', 'w').write('#!/bin/sh\\nexit 3')
        os.chmod('script', 0o700); os.utime('script', (1, 1))
        assert os.stat('script').st_mtime == 1; assert subprocess.call(['./script']) == 3
        """,
    "terminals": """
        import os, pty
        one, two = pty.openpty(); os.write(two, b'x'); assert os.read(one, 1) == b'x'
        assert os.ttyname(two).startswith('/dev/pts/')
        """,
    "sockets_of_its_own": """
        import socket
        server = socket.socket(socket.AF_UNIX); server.bind('s'); server.listen()
        socket.socket(socket.AF_UNIX).connect('s')
        """,
    "the_usual_temporary_folder": """
        import os
        open('/tmp/x', 'w').write('x'); assert os.listdir('/tmp')
        """,
}

RUN_ALL = """
import json, os, subprocess, sys, textwrap
assert 'VmRSS' in open('/proc/self/status').read()
assert os.listdir('/proc/self/fd') and open('/proc/self/maps').read()
outcomes = {}
for name, text in json.load(open(sys.argv[1])).items():
    path = f'program_{name}.py'
    open(path, 'w').write(textwrap.dedent(text))
    run = subprocess.run([sys.executable, path], stdout=-1, stderr=-2, text=True)
    outcomes[name] = run.stdout if run.returncode else ''
print(json.dumps(outcomes))
"""


@pytest.fixture(scope="module")
def worlds() -> Iterator[contextlib.ExitStack]:
    """Keeps what the tests of this module have made."""
    with contextlib.ExitStack() as stack:
        yield stack
        outcomes.cache_clear()


@functools.cache
def outcomes(user: int, kind: str, worlds: contextlib.ExitStack) -> dict[str, str]:
    """What is wrong with each program, once and for all tests."""
    world: World = worlds.enter_context(make_world(user))
    programs = world.working_folder / "programs.json"
    programs.write_text(json.dumps({**PROGRAMS, **WITH_A_PRIVATE_VIEW}))
    rules = world.rules(has_private_view=kind == "private view")
    run = world.run([world.python, "-c", RUN_ALL, str(programs)], rules)
    assert run.returncode == 0, run.stderr
    found: dict[str, str] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("program", [*PROGRAMS, *WITH_A_PRIVATE_VIEW])
@pytest.mark.parametrize("kind", ["private view", "shared view"])
@pytest.mark.parametrize("user", [os.getuid(), NOBODY])
def test_a_program_works(user: int, kind: str, program: str, worlds: contextlib.ExitStack) -> None:
    if user != os.getuid() and os.getuid() != 0:
        pytest.skip("only root can become another user")
    if user != os.getuid() and not shutil.which("/usr/bin/python3"):
        pytest.skip("there is no Python for everyone")
    if program in ("numpy", "messages", "matplotlib", "pip") and user != os.getuid():
        pytest.skip("it is not installed for everyone")
    if program == "pip" and importlib.util.find_spec("pip") is None:
        pytest.skip("this environment has no pip")
    if kind == "private view" and not sandbox.probe().has_private_view:
        pytest.skip("this machine gives no process a file system of its own")
    if kind == "shared view" and program in WITH_A_PRIVATE_VIEW:
        pytest.skip("it needs a file system of its own")

    assert outcomes(user, kind, worlds)[program] == ""
