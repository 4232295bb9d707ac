"""Each language is run by the tools that are there, in the version that was asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from taskweaver_ext.ces.execution.results import ExecutionResult
from taskweaver_ext.ces.process import ProcessExecutor
from taskweaver_ext.ces.programs.languages import BUILT_IN
from taskweaver_ext.machine.tool_versions import ask_version
from tests.support.terminal_program import LIMIT_SECONDS

TYPESCRIPT = "const n: number = 6 * 7; enum E { A = 1 }; console.log(`ts ${n} ${E.A}`);"
SOURCES = {
    "bash": "echo bash",
    "c": '#include <math.h>\n#include <stdio.h>\nint main(void) { puts("c"); return 0; }',
    "cpp": '#include <iostream>\nint main() { std::cout << "cpp" << std::endl; }',
    "go": 'package main\nimport "fmt"\nfunc main() { fmt.Println("go") }',
    "java": 'class Any { public static void main(String[] a) { System.out.println("java"); } }',
    "javascript": "console.log('javascript')",
    "julia": 'println("julia")',
    "lua": 'print("lua")',
    "perl": 'print "perl\\n";',
    "php": '<?php echo "php\\n";',
    "python": "print('python')",
    "r": 'cat("r\\n")',
    "ruby": 'puts "ruby"',
    "rust": 'fn main() { println!("rust"); }',
}


@pytest.fixture
def no_managers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no variable of this machine say where versions are kept."""
    for name in [*os.environ]:
        if name.startswith(("PYENV_", "NVM_", "UV_", "FNM_", "VOLTA_", "ASDF_", "MISE_", "XDG_")):
            monkeypatch.delenv(name)


def run(language: str, code: str, **variables: str) -> ExecutionResult:
    with ProcessExecutor(language, env=variables) as executor:
        return executor.execute(code, timeout=LIMIT_SECONDS)


def make_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_there_is_a_program_for_every_language() -> None:
    assert SOURCES.keys() | {"typescript"} == BUILT_IN.keys()


@pytest.mark.parametrize("language", sorted(SOURCES))
def test_a_program_of_each_language_runs(language: str) -> None:
    tool = BUILT_IN[language].commands[0]
    path = shutil.which(tool)
    if path is None or not ask_version(path):  # rustup has a rustc without a compiler
        pytest.skip(f"{tool} is not installed")

    result = run(language, SOURCES[language])

    assert ("".join(result.stdout), result.exit_code) == (f"{language}\n", 0), result.stderr


@pytest.fixture(scope="module")
def npm_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs with `tsx` and `tsc`."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("npm")
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "tsx", "typescript@5"]
    try:
        done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=240)
    except subprocess.TimeoutExpired:
        pytest.skip("npm took too long to install tsx and typescript")
    if done.returncode != 0:
        pytest.skip(f"npm cannot install tsx and typescript: {done.stderr[-300:]}")
    return folder / "node_modules" / ".bin"


@pytest.mark.parametrize("tool", ["tsx", "tsc"])
def test_typescript_is_run_by_what_there_is(npm_packages: Path, tmp_path: Path, tool: str) -> None:
    for name in (tool, "node"):
        found = shutil.which(name, path=f"{npm_packages}{os.pathsep}{os.environ['PATH']}")
        assert found is not None
        (tmp_path / name).symlink_to(found)
    path = os.pathsep.join([str(tmp_path), "/bin", "/usr/bin"])

    result = run("typescript", TYPESCRIPT, PATH=path)

    assert "".join(result.stdout) == "ts 42 1\n", (result.error, result.stderr)


def test_a_node_that_strips_types_runs_typescript(tmp_path: Path) -> None:
    script = '#!/bin/sh\n[ "$1" = --version ] && echo v22.6.0 || echo "$1"\n'
    make_program(tmp_path / "node", script)

    result = run("typescript", TYPESCRIPT, PATH=str(tmp_path))

    assert "".join(result.stdout) == "--experimental-strip-types\n"


def test_an_older_node_says_what_typescript_needs(tmp_path: Path) -> None:
    make_program(tmp_path / "node", "#!/bin/sh\necho v22.5.9\n")

    result = run("ts", TYPESCRIPT, PATH=str(tmp_path))

    assert result.error == (
        "exec: typescript needs one of these in PATH: tsx, deno, bun, ts-node,"
        " node 22.6 or newer, tsc with node (ENOENT)"
    )


def test_a_version_is_run_with_its_own_folder_first(tmp_path: Path) -> None:
    chosen = tmp_path / ".pyenv/versions/3.12.9/bin/python"
    make_program(chosen, f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    code = "import os; print(os.environ['PATH'].split(':')[0])"

    result = run("python@3.12", code, HOME=str(tmp_path), PATH="/nowhere", VIRTUAL_ENV="")

    assert "".join(result.stdout) == f"{chosen.parent}\n"


@pytest.mark.parametrize(
    ("language", "error"),
    [
        ("python@3.8", "exec: python 3.8 not found; there are 3.12.9 (pyenv) (ENOENT)"),
        ("node@20", "exec: node 20 not found; there is none (ENOENT)"),
        (
            "python@latest",
            "exec: 'latest' is no version; write it like python@3.12 (VERSION_INVALID)",
        ),
        ("python@", "exec: '' is no version; write it like python@3.12 (VERSION_INVALID)"),
        (
            "ts@5",
            "exec: typescript is run by several tools, and has no versions of its own"
            " (VERSION_INVALID)",
        ),
        ("python@/no/such/python", "exec: /no/such/python does not exist (ENOENT)"),
        ("cobol@3", "exec: Unsupported language 'cobol@3' (LANG_UNSUPPORTED)"),
    ],
)
def test_a_version_that_is_not_there_says_what_is(
    no_managers: None, tmp_path: Path, language: str, error: str
) -> None:
    make_program(tmp_path / ".pyenv/versions/3.12.9/bin/python", "#!/bin/sh\n")

    with ProcessExecutor(
        language, cwd=tmp_path, env={"HOME": str(tmp_path), "PATH": "/nowhere", "VIRTUAL_ENV": ""}
    ) as executor:
        result = executor.execute("1")

    assert (result.error, result.exit_code) == (error, None)
