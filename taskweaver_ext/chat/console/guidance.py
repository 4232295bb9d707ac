"""What the chat says to people who do not know it yet."""

from __future__ import annotations

from taskweaver_ext.chat.console.requests import COMMANDS, MODES
from taskweaver_ext.config import FILE_NAME

WELCOME = "Type a request, > for Python, ! for shell, /help for more; Ctrl-D leaves."

NO_MODEL = f"""\
No model is set, so nobody can plan for you yet. What works at once:
  > print("hello")              runs Python, live, in this session
  ! ls                          runs a shell command
  /demo                         shows a scripted model at work
To have a model of your own on this machine, offline (1.1 GB):
  taskweaver-ext model fetch
Or put two lines of one provider into {FILE_NAME}:
  OpenAI      "llm.api_type": "openai",
              "llm.api_key": "YOUR KEY"
  Anthropic   "llm.api_type": "anthropic",
              "llm.api_key": "YOUR KEY"
  Ollama      "llm.api_type": "ollama",
              "llm.model": "qwen2.5-coder"
  Local file  "llm.api_type": "local",
              "llm.model": "PATH OF A GGUF FILE"
"""

_KEYS = """\
Enter sends; Alt-Enter begins another line; Tab completes; Up and Down, Ctrl-R find earlier lines.
Ctrl-C stops what runs, twice kills the kernel; at an empty prompt it leaves, as Ctrl-D does."""


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
