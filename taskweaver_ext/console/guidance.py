"""What the chat says to people who do not know it yet."""

from __future__ import annotations

from taskweaver_ext.chat.requests import COMMANDS, MODES

WELCOME = "Type a request, > for Python, ! for shell, /help for more; Ctrl-D leaves."

LEAVE_TWICE = "Ctrl-C again leaves, as Ctrl-D does."

LOCAL_KERNEL = (
    "Code runs on this machine, with your rights; taskweaver-ext chat --kernel container keeps it"
    " in a container."
)

_KEYS = """\
Enter sends; Alt-Enter begins another line; Tab completes; Up and Down, Ctrl-R find earlier lines.
Ctrl-C stops what runs, twice kills it; at an empty prompt it leaves, as Ctrl-D does."""


def help_text() -> str:
    """Everything that can be typed."""
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  /{name:<{width}}  {meaning}" for name, meaning in COMMANDS.items())
    return (
        "text      asks the agent\n"
        "> code    runs Python in the session's kernel\n"
        "! command runs in the session's shell\n"
        f"(/mode {'|'.join(MODES)} makes one of them the default)\n\n"
        f"{commands}\n\n{_KEYS}"
    )
