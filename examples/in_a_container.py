"""Run code that was not reviewed: in a container without network, with limits on everything.

Needs a Docker engine and an image, which `taskweaver-ext image build` makes once.

Prints:
    network: Network is unreachable
    files of the system: Read-only file system
    The kernel died: out_of_memory
    There is another one, and it says so: restarted
"""

from taskweaver_ext import ContainerLimits, ContainerSettings, Environment, EnvMode

CODE = """
import pathlib, socket

try:
    socket.create_connection(("192.0.2.1", 80))
except OSError as error:
    print("network:", error.strerror)
try:
    pathlib.Path("/usr/mine").touch()
except OSError as error:
    print("files of the system:", error.strerror)
"""


def show(stream: str, text: str) -> None:
    """Called while the code runs."""
    print(text, end="")


settings = ContainerSettings(limits=ContainerLimits(memory_bytes=256 << 20))

with Environment("work", EnvMode.Container, container=settings) as environment:
    environment.start_session("s1")
    environment.execute_code("s1", CODE, on_output=show, timeout=60)

    result = environment.execute_code("s1", "hoard = bytearray(1 << 30)")
    print("The kernel died:", result.death and result.death.cause)
    result = environment.execute_code("s1", "pass")
    print("There is another one, and it says so:", result.notices[0].kind)
