"""A process that ends a family of processes when ours is killed and cannot do so itself.

It is a bash that waits for a line. Our end of its input closes with us, however we end;
then it looks for the family's members and kills them. It needs nothing but bash itself.
"""

from __future__ import annotations

import contextlib
import subprocess

from taskweaver_ext.ces.inside.spawner.process_tree import MARK, ProcessFamily
from taskweaver_ext.machine.forks import closed_in_forks

_WATCH = r"""
read -r && exit
kill -KILL -- "-$1" 2>/dev/null
for round in {1..50}; do
    found=
    for folder in /proc/[0-9]*; do
        { read -r line <"$folder/stat"; } 2>/dev/null || continue
        fields=(${line##*) })
        if [[ ${fields[3]} != "$1" ]]; then
            { mapfile -d '' -t variables <"$folder/environ"; } 2>/dev/null || continue
            is_member=
            for variable in "${variables[@]}"; do
                [[ $variable != "$2"* ]] || is_member=1
            done
            [[ $is_member ]] || continue
        fi
        [[ ${fields[0]} == Z ]] || found=1
        kill -KILL "${folder#/proc/}" 2>/dev/null
    done
    [[ $found ]] || exit
done
"""
"""Bash builtins only. $1 is the family's leader, and the number of its group and session; $2 is
what members have in their environment."""


class OrphanKiller:
    """Watches over one family; `dismiss` ends it once the family has ended."""

    def __init__(self, bash: str, family: ProcessFamily) -> None:
        """Begin to watch; raises OSError when that cannot be."""
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-c", _WATCH, "taskweaver-orphan-killer",
             str(family.leader), f"{MARK}={family.mark}"],
            executable=bash,
            cwd="/",
            env={},
            stdin=subprocess.PIPE,
            bufsize=0,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        closed_in_forks(self._process.stdin)

    def dismiss(self) -> None:
        """Let it go without doing anything."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(b"\n")
