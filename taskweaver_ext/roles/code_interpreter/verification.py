"""Look at Python code before it runs: what it must not call, and whether it is shell in disguise.

The code is read as the kernel will read it (magics included) and judged by its
syntax tree. This keeps a model from habits that hide what code does; it is no
sandbox, which only a container is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass

_BUILTINS_MODULES = frozenset({"builtins", "__builtin__", "__builtins__"})
_HARMLESS_METHODS = frozenset({"compile", "eval", "exec", "globals", "locals", "reload", "vars"})
"""Names of built-in functions that are also names of ordinary methods: `re.compile`."""
_OWNERS_OF_FUNCTIONS = _BUILTINS_MODULES | {"importlib", "imp"}
"""Modules where such a name is the function itself."""
_BACK_DOORS = frozenset({"__builtins__", "__globals__", "__subclasses__", "__import__", "__self__"})
"""Attributes with no other use than to get at what is blocked."""
_DYNAMIC_IMPORTS = frozenset({"importlib.import_module", "importlib.__import__"})
_UNSEEN_CODE_FUNCTIONS = frozenset({"runpy.run_path", "runpy.run_module"})

_SHELL_MODULES = frozenset({"subprocess", "pty", "pexpect", "sh"})
"""Modules that are there to run programs."""
_SHELL_FUNCTIONS_OF_OS = (
    "system popen posix_spawn posix_spawnp startfile"
    " execl execle execlp execlpe execv execve execvp execvpe"
    " spawnl spawnle spawnlp spawnlpe spawnv spawnve spawnvp spawnvpe"
)
_SHELL_FUNCTIONS = frozenset(
    {f"{module}.{name}" for module in ("os", "posix") for name in _SHELL_FUNCTIONS_OF_OS.split()}
    | {f"asyncio.create_subprocess_{name}" for name in ("exec", "shell")}
    | {f"process.{name}" for name in ("system", "getoutput", "getoutputerror")}  # IPython's own
)
_SHELL_METHODS = frozenset(
    {"system", "system_piped", "system_raw", "getoutput", "getoutput_detail"}
)
_SHELL_MAGICS = frozenset(
    "bash sh script system sx cmd perl ruby pypy python python2 python3 alias alias_magic rehashx"
    " ls ll lf lk ldir lx cat cp mv rm rmdir mkdir man less more".split()
)
_PYTHON_MAGICS = frozenset({"time", "timeit", "capture", "prun"})
_OTHER_CELL_MAGICS = frozenset(
    {"html", "markdown", "latex", "svg", "js", "javascript", "writefile"}
)
_UNSEEN_CODE_MAGICS = frozenset({"run", "load", "loadpy", "rerun", "recall", "macro", "edit"})
_FIRST_WORD = re.compile(r"\s*(\w+)(?!\S)")
_MAGIC_OPTIONS = re.compile(r"(?:-\w+(?:[ =]?\d+)?\s+)*")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said about code before it runs."""

    errors: tuple[str, ...] = ()
    """One sentence for each thing that must not be there."""
    shell_uses: tuple[str, ...] = ()
    """Where it runs other programs; such code counts as shell."""


def inspect_python(
    code: str, *, blocked_functions: Collection[str], allowed_modules: Collection[str] | None
) -> Verdict:
    """Judge Python code, with or without magics.

    Args:
        allowed_modules: What may be imported, by first name; None allows everything.
    """
    inspector = _Inspector(frozenset(blocked_functions), allowed_modules)
    inspector.inspect(code)
    return Verdict(tuple(inspector.errors), tuple(inspector.shell_uses))


class _Inspector(ast.NodeVisitor):
    """Walk through a syntax tree and note what should not be there."""

    def __init__(self, blocked: frozenset[str], allowed_modules: Collection[str] | None) -> None:
        self.errors: list[str] = []
        self.shell_uses: list[str] = []
        self._blocked = blocked
        self._allowed_modules = allowed_modules
        self._full_names: dict[str, str] = {}
        self._lines: list[str] = []

    def inspect(self, code: str) -> None:
        # Only now: IPython takes longer to import than all of ours that a chat needs.
        from IPython.core.inputtransformer2 import TransformerManager

        try:
            transformer = TransformerManager()  # type: ignore[no-untyped-call]  # IPython's own
            source = transformer.transform_cell(code)
            flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            tree = compile(source, "<code>", "exec", flags)
            outer_lines, self._lines = self._lines, source.splitlines()
            self._learn_imports(tree)
            self._check_first_word(tree)
            self.visit(tree)
            self._lines = outer_lines
        except SyntaxError as error:
            self.errors.append(f"SyntaxError: {error.msg} (line {error.lineno}).")
        except (ValueError, RecursionError, MemoryError) as error:
            self.errors.append(f"The code cannot be read as Python: {error}.")

    def _learn_imports(self, tree: ast.AST) -> None:
        """Take note of what names stand for; functions may use what is imported further down."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    self._full_names[bound] = alias.name if alias.asname else bound
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    name = alias.asname or alias.name
                    self._full_names[name] = f"{node.module or ''}.{alias.name}"
                if any(alias.name == "*" for alias in node.names):
                    functions = (one.rpartition(".") for one in _SHELL_FUNCTIONS)
                    self._full_names |= {
                        name: f"{module}.{name}"
                        for module, _, name in functions
                        if module == node.module
                    }

    def _check_first_word(self, tree: ast.Module) -> None:
        """Find a magic without its percent sign: in code of one line the kernel takes it for one.

        `ls -a` is a shell command there, and looks like a subtraction here.
        """
        word = _FIRST_WORD.match(self._lines[0]) if len(self._lines) == 1 else None
        is_value = bool(tree.body) and isinstance(tree.body[0], ast.Expr)
        if word and is_value and word[1] in _SHELL_MAGICS:
            self.shell_uses.append(f"line 1: the magic {word[1]!r}")

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._check_module(node, alias.name)
            self._check_for_shell(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if not node.level:
            self._check_module(node, module)
        for alias in node.names:
            self._check_for_shell(node, f"{module}.{alias.name}")
            if module in _BUILTINS_MODULES and (alias.name in self._blocked or alias.name == "*"):
                self._block(node, alias.name)

    def visit_Name(self, node: ast.Name) -> None:
        is_read = isinstance(node.ctx, ast.Load)
        if is_read and (node.id in self._blocked or (self._blocked and node.id in _BACK_DOORS)):
            self._block(node, node.id)
        if is_read:
            self._check_full_name(node, self._full_name(node) or "")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._check_full_name(node, self._full_name(node) or "")
        owner = self._full_name(node.value) or ""
        is_blocked = node.attr in self._blocked and (
            node.attr not in _HARMLESS_METHODS or owner in _OWNERS_OF_FUNCTIONS
        )
        if is_blocked or (self._blocked and node.attr in _BACK_DOORS):
            self._block(node, node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _is_shell_object(node):
            self._refuse(node, "get_ipython() may only be used at once, not kept")
        if isinstance(node.func, ast.Attribute) and _is_shell_object(node.func.value):
            self._inspect_magic(node, node.func.attr)
            for argument in node.args:
                self.visit(argument)
        else:
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if name := self._full_name(node):
            self._check_full_name(node, name)
        elif self._full_name(node.value) == "sys.modules" and "__import__" in self._blocked:
            self._block(node, "sys.modules")
        self.generic_visit(node)

    def _check_full_name(self, node: ast.expr, name: str) -> None:
        """Judge what is named; that is enough, since names can be passed on."""
        self._check_for_shell(node, name)
        if name in _DYNAMIC_IMPORTS and "__import__" in self._blocked:
            self._block(node, name)
        if name in _UNSEEN_CODE_FUNCTIONS:
            self._refuse(node, f"{name} runs code that cannot be checked here")

    def _check_for_shell(self, node: ast.expr | ast.stmt, name: str) -> None:
        """Take note of what runs programs."""
        parts = name.split(".")
        # A name such as `sh` is a module only where it is imported.
        is_module = parts[0] in _SHELL_MODULES and isinstance(node, ast.stmt)
        # Modules can be reached through others that import them: `shutil.os.system`.
        is_function = ".".join(parts[-2:]) in _SHELL_FUNCTIONS
        if is_module or is_function or "subprocess" in parts:
            use = f"line {node.lineno}: {name}"
            if use not in self.shell_uses:
                self.shell_uses.append(use)

    def _inspect_magic(self, node: ast.Call, method: str) -> None:
        if method in _SHELL_METHODS:
            self.shell_uses.append(f"line {node.lineno}: a shell escape")
            return
        if method not in ("run_line_magic", "run_cell_magic"):
            if method in ("run_cell", "run_code", "ex", "ev", "magic"):
                self._refuse(node, f"{method} runs code that cannot be checked here")
            return
        texts = [one.value if isinstance(one, ast.Constant) else None for one in node.args]
        name = str(texts[0]).lower() if texts and texts[0] else ""
        is_cell = method == "run_cell_magic"
        if name in _SHELL_MAGICS:
            self.shell_uses.append(f"line {node.lineno}: the magic {name!r}")
        elif not name or name in _UNSEEN_CODE_MAGICS:
            self._refuse(node, f"the magic {name!r} runs code that cannot be checked here")
        elif name in _PYTHON_MAGICS:
            # The line of a cell magic holds options or code to set up with; the body is code.
            body = str(texts[-1] or "") if is_cell else _without_options(str(texts[-1] or ""))
            self.inspect(body)
        elif is_cell and name not in _OTHER_CELL_MAGICS:
            self._refuse(node, f"what the cell magic {name!r} does with the cell is not known")

    def _full_name(self, node: ast.expr) -> str | None:
        """Return what an expression names, with imports resolved: `sp.run` is `subprocess.run`."""
        match node:
            case ast.Name():
                return self._full_names.get(node.id, node.id)
            case ast.Attribute():
                owner = self._full_name(node.value)
                return f"{owner}.{node.attr}" if owner else None
            case ast.Subscript(slice=ast.Constant(value=str(module))):
                is_table = self._full_name(node.value) == "sys.modules"
                return module if is_table else None
        return None

    def _check_module(self, node: ast.stmt, module: str) -> None:
        root = module.partition(".")[0]
        if self._allowed_modules is not None and root not in self._allowed_modules:
            allowed = ", ".join(sorted(self._allowed_modules)) or "none"
            self._refuse(node, f"importing {root!r} is not allowed (allowed modules: {allowed})")

    def _block(self, node: ast.AST, name: str) -> None:
        self._refuse(node, f"{name!r} is not allowed")

    def _refuse(self, node: ast.AST, reason: str) -> None:
        number = getattr(node, "lineno", 0)
        line = self._lines[number - 1].strip() if 0 < number <= len(self._lines) else ""
        message = f"Line {number}: {reason}: {line[:100]}"
        if message not in self.errors:
            self.errors.append(message)


def _is_shell_object(node: ast.expr) -> bool:
    """Whether an expression is IPython's shell, through which all magics go."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name == "get_ipython"
    return False


def _without_options(line: str) -> str:
    options = _MAGIC_OPTIONS.match(line)
    return line[options.end() :] if options else line
