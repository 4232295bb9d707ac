"""Code is judged before it runs: by its syntax tree, as the kernel will read it."""

from __future__ import annotations

import pytest

from taskweaver_ext.config.settings import CodeInterpreterConfig
from taskweaver_ext.roles.code_interpreter.verification import Verdict, inspect_python


def inspect(code: str, allowed_modules: tuple[str, ...] | None = None) -> Verdict:
    blocked = CodeInterpreterConfig().blocked_functions
    return inspect_python(code, blocked_functions=blocked, allowed_modules=allowed_modules)


@pytest.mark.parametrize(
    "code",
    [
        "print(1)",
        "open('x').read(); name = input()",
        "import re; re.compile('a+').match('aa')",
        "model.eval(); frame.eval('a + b')",
        "compile_report = 1; compile_report + 1",
        "%matplotlib inline\nimport os; os.getcwd()",
        "%pip install pandas",
        "%time sum(range(10))",
        "%timeit -n 10 -r 3 sum(range(10))",
        "%%time\ntotal = 1\ntotal",
        "%%capture out\nprint(1)",
        "await something()",
        "x = 5\nx?",
        "text = '!ls and %%bash'",
        "def f():\n    return 'eval'",
        "sh = book.sheet(); sh.cell(1)",
        "import platform; platform.system()",
        "window.exec(); page.reload(); frame.vars; self.locals",
        "import sys; 'pandas' in sys.modules",
        "ls = [1, 2]\nls",
        "cat = 5",
    ],
)
def test_ordinary_code_passes(code: str) -> None:
    assert inspect(code) == Verdict()


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("eval('1')", "eval"),
        ("e = eval\ne('1')", "eval"),
        ("list(map(exec, ['x = 1']))", "exec"),
        ("import builtins as b; b.eval('1')", "eval"),
        ("from builtins import eval as harmless", "eval"),
        ("__builtins__['eval']('1')", "__builtins__"),
        ("getattr(os, 'system')('ls')", "getattr"),
        ("().__class__.__base__.__subclasses__()", "__subclasses__"),
        ("f.__globals__['x']", "__globals__"),
        ("import importlib; importlib.import_module('os')", "import_module"),
        ("import importlib; importlib.reload(x)", "reload"),
        ("%time eval('1')", "eval"),
        ("%%time\nx = 1\neval('1')", "eval"),
        ("if True:\n    %timeit exec('1')", "exec"),
        ("%run other.py", "run"),
        ("get_ipython().run_cell('x')", "run_cell"),
        ("%%mystery\nwhatever", "mystery"),
        ("shell = get_ipython()\nshell.system('ls')", "get_ipython"),
        ("run = get_ipython().system", "get_ipython"),
        ("from IPython import get_ipython\nshell = get_ipython()", "get_ipython"),
        ("import IPython\nshell = IPython.get_ipython()", "get_ipython"),
        ("import importlib; load = importlib.import_module", "import_module"),
        ("import sys\nsys.modules[name].run('ls')", "sys.modules"),
        ("print.__self__.eval('1')", "__self__"),
        ("import runpy\nrunpy.run_path('other.py')", "run_path"),
    ],
)
def test_what_is_blocked_is_found_however_it_is_written(code: str, named: str) -> None:
    errors = inspect(code).errors

    assert len(errors) >= 1
    assert named in " ".join(errors)


@pytest.mark.parametrize(
    "code",
    [
        "!ls",
        "if True:\n    !ls",
        "files = !ls",
        "!!ls",
        "%%bash\nls",
        "%%script bash\nls",
        "%sx ls",
        "%rm -rf x",
        "x = %system ls",
        "get_ipython().system('ls')",
        "import os\nos.system('ls')",
        "import subprocess as sp\nsp.run(['ls'])",
        "from subprocess import check_output as run\nrun('ls', shell=True)",
        "from subprocess import *",
        "import subprocess as used_in_the_next_cell",
        "import os as o\nf = o.popen",
        "from os import execvp",
        "import asyncio\nawait asyncio.create_subprocess_shell('ls')",
        "import os\nlist(map(os.system, ['ls']))",
        "from os import *\nsystem('ls')",
        "import shutil\nshutil.os.system('ls')",
        "import posix\nposix.system('ls')",
        "import sys\nsys.modules['subprocess'].run(['ls'])",
        "import sys\nsys.modules['os'].system('ls')",
        "def run():\n    o.system('ls')\nimport os as o",
        "import IPython\nIPython.get_ipython().system('ls')",
        "from IPython.utils.process import system as run",
        "ls -a",
        "rm -rf; print(1)",
    ],
)
def test_shell_in_disguise_counts_as_shell(code: str) -> None:
    verdict = inspect(code)

    assert verdict.shell_uses
    assert verdict.errors == ()


@pytest.mark.parametrize("code", ["print(", "def f(:\n  pass", "x = 'open", "\0"])
def test_code_that_is_no_python_is_told_apart(code: str) -> None:
    assert len(inspect(code).errors) == 1


def test_only_allowed_modules_may_be_imported() -> None:
    code = "import numpy.linalg\nimport os\nfrom pandas import DataFrame\nfrom sys import path"

    errors = inspect(code, allowed_modules=("numpy", "pandas")).errors

    assert [error.split(":")[0] for error in errors] == ["Line 2", "Line 4"]
    assert inspect("import os", allowed_modules=()).errors


def test_deeply_nested_code_is_an_error_and_no_crash() -> None:
    assert len(inspect("(" * 5000 + ")" * 5000).errors) == 1
