"""Code that leaves its kernel, or its shell, alive and unable to work.

Each is run as one execution. Afterwards the session must go on: either the kernel has
survived it, or the next execution runs on a fresh one and says so.
"""

from __future__ import annotations

_IMPORTS = "import asyncio, builtins, ctypes, gc, os, signal, sys, threading, time, zmq\n"

_KERNEL_WRECKERS = {
    "the loop is stopped": "asyncio.get_running_loop().stop()",
    "the loop is closed by force": """
loop = asyncio.get_running_loop()
loop.call_soon(lambda: setattr(loop, "_ready", None))
""",
    "the loop's selector is closed": "asyncio.get_running_loop()._selector.close()",
    "the loop waits for ever in a callback": """
asyncio.get_running_loop().call_later(0.05, threading.Event().wait)
""",
    "the loop is busy for ever in a callback": """
def spin():
    while True:
        pass
asyncio.get_running_loop().call_later(0.05, spin)
""",
    "all other tasks are cancelled": """
for task in asyncio.all_tasks():
    if task is not asyncio.current_task():
        task.cancel()
""",
    "the ZeroMQ context is terminated": """
threading.Thread(target=get_ipython().kernel.shell_stream.socket.context.destroy).start()
""",
    "the shell channel is closed": "get_ipython().kernel.shell_stream.close()",
    "the shell channel is not listened to": "get_ipython().kernel.shell_stream.stop_on_recv()",
    "all descriptors are closed": "os.closerange(3, 4096)",
    "all descriptors are closed later": """
threading.Timer(0.05, os.closerange, (3, 4096)).start()
""",
    "all descriptors lead to nothing": """
nothing = os.open(os.devnull, os.O_RDWR)
for number in range(3, 256):
    if number != nothing:
        try:
            os.fstat(number)
        except OSError:
            continue
        os.dup2(nothing, number)
""",
    "sys.modules is emptied": "sys.modules.clear()",
    "the builtins are deleted": "builtins.__dict__.clear()",
    "the builtins are deleted later": """
threading.Timer(0.05, builtins.__dict__.clear).start()
""",
    "the runtime's globals are deleted": """
for name in [name for name in sys.modules if name.startswith("taskweaver_inside")]:
    vars(sys.modules[name]).clear()
""",
    "json is replaced": "import json; json.dumps = json.loads = None",
    "os.write and os.read are replaced": "os.write = os.read = None",
    "the runtime is taken away": "type(get_ipython().kernel).runtime = None",
    "the runtime never ends an execution": """
get_ipython().kernel.runtime.queue.end = lambda text: None
""",
    "the runtime never begins an execution": """
async def never(*args):
    await asyncio.Event().wait()
type(get_ipython().kernel).do_execute = never
""",
    "the output's lock is held for ever": """
lock = get_ipython().kernel.runtime.queue._wire._lock
thread = threading.Thread(target=lock.acquire)
thread.start()
thread.join()
""",
    "all threads are ended": """
raised = ctypes.py_object(SystemExit)
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), raised)
""",
    "the handlers of all signals are replaced": """
for number in signal.valid_signals():
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
""",
    "all signals are blocked": "signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())",
    "it is stopped by a signal": """
threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGSTOP)).start()
""",
    "the lock of the interpreter is held for ever": """
threading.Timer(0.05, ctypes.PyDLL(None).pause).start()
""",
    "the garbage collector raises": """
def fail(phase, info):
    raise RuntimeError
gc.callbacks.append(fail)
gc.set_threshold(1)
""",
    "the recursion limit is tiny": "sys.setrecursionlimit(60)",
    "a trace function raises": """
def fail(*args):
    raise RuntimeError
sys.settrace(fail); threading.settrace(fail)
""",
    "IPython's shell is replaced": "get_ipython().kernel.shell = None",
    "the session's key is replaced": "get_ipython().kernel.session.key = b'other'",
    "there are no descriptors left": """
kept = []
try:
    while True:
        kept.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
""",
}

KERNEL_WRECKERS = {name: _IMPORTS + code.lstrip() for name, code in _KERNEL_WRECKERS.items()}

HARMLESS = "print('still here')"

SHELL_WRECKERS = {
    "its input leads to nothing": "exec </dev/null",
    "its input is closed": "exec <&-",
    "its output leads to nothing": "exec >/dev/null 2>&1",
    "all its descriptors are closed": (
        'for f in /proc/$$/fd/*; do n=${f##*/}; eval "exec $n>&-"; done'
    ),
    "what it saved is closed": 'for n in {10..300}; do eval "exec $n>&-" 2>/dev/null; done',
    "it ends at a failure": "set -e; false",
    "it exits": "set -e; exit 3",
    "all signals are ignored": "for s in {1..64}; do trap '' $s 2>/dev/null; done",
    "a trap exits": "trap 'exit 5' DEBUG",
    "a trap hangs": "trap 'sleep 1000' DEBUG",
    "a prompt command exits": "PROMPT_COMMAND='exit 4'",
    "a prompt command hangs": "PROMPT_COMMAND='sleep 1000'",
    "a prompt hangs": "PS0='$(sleep 1000)'; PS1='$(sleep 1000)'",
    "its builtins are replaced": "printf() { :; }; builtin() { :; }; export() { :; }",
    "its builtins are switched off": "enable -n printf builtin . export",
    "its builtins are aliases": "alias printf=false builtin=false .=false",
    "it executes nothing": "set -n",
    "it is restricted": "set -r",
    "it may not redirect": "ulimit -n 4",
    "our variable is read-only": "readonly _taskweaver_running=1",
    "all variables are unset": "for v in $(compgen -v); do unset $v 2>/dev/null; done; IFS=0123",
    "it is another program": "exec cat",
    "it ends for want of input": "TMOUT=1",
    "the code is unfinished": "if true; then",
}
