"""A process that ends what we have started when we are killed and cannot do so ourselves.

It is a bash that reads which families of processes there are. Our end of its input closes with
us, however we end; then it looks for the members of those families and kills them. It needs
nothing but bash itself. There is one for this process, for as long as there are families.

A family is known by its mark before it is started, so that no moment is left in which we could
be killed unnoticed. Without Linux's /proc only the leader's group can be reached.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import weakref
from collections.abc import Callable

from taskweaver_ext.ces.inside.spawner.process_tree import MARK, ProcessFamily
from taskweaver_ext.ces.inside.spawner.started_process import new_mark
from taskweaver_ext.machine.forks import closed_in_forks, not_in_forks

_WATCH = r"""
trap '' HUP INT TERM
while read -r verb mark leader tag lifeline; do
    if [[ $verb == watch ]]; then
        eval "family_$mark=$leader:$tag:$lifeline"
    else
        unset "family_$mark"
    fi
done
lifelines=()
for family in ${!family_*}; do
    IFS=: read -r leader tag lifeline <<<"${!family}"
    eval "tag_$tag=1"
    [[ ! $lifeline ]] || lifelines+=(-o -lname "pipe:\\[$lifeline\\]")
    [[ $leader != 0 ]] || continue
    eval "session_$leader=1"
    kill -KILL -- "-$leader" 2>/dev/null
done
is_member() {
    local variables variable limits name
    name=session_$2
    [[ ! ${!name} ]] || return 0
    { mapfile -d '' -t variables <"$1/environ"; } 2>/dev/null
    for variable in "${variables[@]}"; do
        [[ $variable =~ ^@MARK@=([0-9a-f]+)(-[0-9]+)?$ ]] || continue
        name=family_${BASH_REMATCH[1]}
        [[ ! ${!name} ]] || return 0
    done
    { read -r -d '' limits <"$1/limits"; } 2>/dev/null
    [[ $limits =~ "realtime timeout"[[:space:]]+([0-9]+)[[:space:]] ]] || return 1
    name=tag_${BASH_REMATCH[1]}
    [[ ${!name} ]]
}
for round in {1..100}; do
    [[ ${!family_*} ]] || exit
    found=
    for folder in /proc/[0-9]*; do
        { read -r line <"$folder/stat"; } 2>/dev/null || continue
        fields=(${line##*) })
        [[ ${fields[0]} != [ZX] ]] && is_member "$folder" "${fields[3]}" || continue
        found=1
        kill -KILL "${folder#/proc/}" 2>/dev/null
    done
    while [[ ${lifelines[*]} ]] && read -r path; do
        folder=${path#/proc/}
        found=1
        kill -KILL "${folder%%/*}" 2>/dev/null
    done < <(find /proc/[0-9]*/fd -maxdepth 1 -false "${lifelines[@]}" 2>/dev/null)
    [[ $found ]] || exit
done
""".replace("@MARK@", MARK)
"""Bash builtins only, and of those on other systems than Linux only what an old bash has. Where
there is `find`, it looks for those that cleared their environment before they had their tag."""


class OrphanKiller:
    """Knows the families that are to end with this process.

    Threads:
        Any thread may call any method. `_lock` guards all fields.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = os.getpid()

    def watch(self, family: ProcessFamily) -> None:
        """End a family with us; again once its leader is known, which is 0 before.

        Where there is no room for one more process, or no bash, we go without.
        """
        with self._lock:
            self._leave_what_a_fork_copied()
            with contextlib.suppress(OSError):
                if self._process is None:
                    self._process = _start()
                self._marks.add(family.mark)
                pipe = "".join(filter(str.isdigit, family.lifeline))
                self._say(f"watch {family.mark} {family.leader} {family.tag_value} {pipe}\n")

    def stay_for(self, user: object) -> Callable[[], object]:
        """Stay between families, so that none has to wait for the start of the process.

        Returns:
            What ends that; so does the end of the user.
        """
        mark = new_mark()
        self.watch(ProcessFamily(0, mark))
        finalizer = weakref.finalize(user, not_in_forks(self._forget_elsewhere), mark)
        finalizer.atexit = False  # it ends with us in any case

        def leave() -> None:
            if finalizer.detach() is not None:
                self.forget(mark)

        return leave

    def _forget_elsewhere(self, mark: str) -> None:
        """Called by the garbage collector, on any thread, which may hold any lock: do not wait."""
        name = "taskweaver-orphan-killer-end"
        threading.Thread(target=self.forget, args=(mark,), name=name, daemon=True).start()

    def forget(self, mark: str) -> None:
        """A family has ended; to be called while its leader's number cannot be another's yet."""
        with self._lock:
            self._leave_what_a_fork_copied()
            if mark not in self._marks:
                return
            self._marks.remove(mark)
            self._say(f"forget {mark}\n")
            if not self._marks and self._process is not None:
                self._process.communicate()
                self._process = None

    def _leave_what_a_fork_copied(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._process = None
            self._marks.clear()

    def _say(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it was killed
            self._process.stdin.write(line.encode())


def _start() -> subprocess.Popen[bytes]:
    bash = shutil.which("bash", path=os.defpath) or shutil.which("bash")
    if bash is None:
        raise FileNotFoundError("bash")
    process = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-c", _WATCH, "taskweaver-orphan-killer"],
        executable=bash,
        cwd="/",
        env={},
        stdin=subprocess.PIPE,
        bufsize=0,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None
    closed_in_forks(process.stdin)
    return process


ORPHAN_KILLER = OrphanKiller()
"""That of this process."""
