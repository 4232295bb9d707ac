"""A demonstration without a model: scripted replies, played through everything else for real.

The planner, the code interpreter, the kernel, the plugins and the frontend are the
ones that a model would use; only what the model says is written down here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.llm.chat_model import Message
from taskweaver_ext.llm.scripted import ScriptedModel, ScriptEntry

DEMO_REQUEST = (
    "Make up half a year of daily visitor numbers with a rhythm in them, find the rhythm, and show"
    " me a chart."
)
DELAY_SECONDS = 0.012
LABEL = "(Scripted demonstration: no model is thinking here.)"

_STEPS = """\
1. CodeInterpreter makes up 180 days of visitor numbers
2. CodeInterpreter looks for the rhythm with the period_scan plugin
3. CodeInterpreter saves a chart with the line_chart plugin
4. Report to the User"""

_MAKE_DATA = """\
import math, random, time

random.seed(7)
visitors = []
for day in range(180):
    weekly = 40 * math.sin(2 * math.pi * day / 7)
    visitors.append(200 + weekly + random.gauss(0, 8))
    if day % 6 == 5:
        done = (day + 1) // 6
        bar = "#" * done + "." * (30 - done)
        print(f"\\rmaking days [{bar}] {day + 1}/180", end="", flush=True)
        time.sleep(0.05)
print()
"""
_WITH_MISTAKE = _MAKE_DATA + 'print("first week:", [round(n) for n in vistors[:7]])\n'
_CORRECTED = 'print("first week:", [round(n) for n in visitors[:7]])\n'
_SCAN = """\
period, strength, finding = period_scan(visitors, 40)
print(finding)
"""
_CHART = """\
means = [sum(visitors[max(0, i - 6):i + 1]) / len(visitors[max(0, i - 6):i + 1])
         for i in range(len(visitors))]
path, saved = line_chart({"visitors": visitors, "mean of 7 days": means}, "Visitors per day")
print(saved)
"""


def make_demo_app(
    plugin_folder: Path, app_dir: Path, *, delay_seconds: float = DELAY_SECONDS
) -> TaskWeaverApp:
    """Return an application that plays the demonstration once, for `DEMO_REQUEST`.

    Args:
        plugin_folder: Where `period_scan` and `line_chart` are.
        app_dir: A folder for its sessions.
        delay_seconds: The time from one piece of a reply to the next.
    """
    settings: dict[str, object] = {
        "plugin.base_path": str(plugin_folder.absolute()),
        "session.roles": ["planner", "code_interpreter"],
        "session.cwd": "session",
        "session.max_internal_chat_round_num": 12,
        "code_interpreter.code_verification_on": True,
        "execution_service.kernel_mode": "local",
    }
    return TaskWeaverApp(app_dir, settings, model=demo_model(delay_seconds))


def demo_model(delay_seconds: float = DELAY_SECONDS) -> ScriptedModel:
    """Return the model of the demonstration, which writes at the pace of a quick reader."""
    script: list[ScriptEntry] = [
        _plan(
            1,
            f"{LABEL} The numbers come first: whatever looks for a rhythm needs some.",
            "Make up 180 days of visitor numbers with a rhythm, as `visitors`.",
        ),
        _code("A sine wave with some noise will do; show the progress.", _WITH_MISTAKE),
        _code("The name was misspelt. The numbers are there already: only print them.", _CORRECTED),
        _plan(
            2,
            "The numbers are there; now their rhythm.",
            "Find the rhythm in `visitors` with period_scan.",
        ),
        _code("The plugin does the work, and logs what it finds.", _SCAN),
        _plan(
            3,
            "The rhythm is known; a picture says it best.",
            "Draw `visitors` and their mean over 7 days with line_chart.",
        ),
        _code("A moving mean makes the level visible behind the rhythm.", _CHART),
        _report,
    ]
    return ScriptedModel(script, piece_chars=3, delay_seconds=delay_seconds)


def _plan(
    step: int, reasoning: str, message: str, to: str = "CodeInterpreter", stop: str = "InProcess"
) -> str:
    fields = {
        "plan_reasoning": reasoning,
        "init_plan": _STEPS,
        "plan": _STEPS,
        "current_plan_step": _STEPS.splitlines()[step - 1],
        "stop": stop,
        "send_to": to,
        "message": message,
    }
    return json.dumps({"response": fields})


def _code(thought: str, code: str) -> str:
    fields = {"thought": thought, "reply_type": "python", "reply_content": code}
    return json.dumps({"response": fields})


def _report(messages: Sequence[Message]) -> str:
    """Write the answer from what the code really found."""
    heard = "\n".join(message.content for message in messages)
    finding = re.search(r"The series [^\n]*\.", heard)
    saved = re.search(r"was saved to ([^\s\"]+\.(?:png|svg))", heard)
    parts = [
        "**Done.** I made up 180 days of visitor numbers.",
        finding[0] if finding else "The rhythm could not be found.",
        f"The chart is in `{saved[1]}`." if saved else "The chart could not be drawn.",
        LABEL,
    ]
    return _plan(4, "All steps are done.", "\n\n".join(parts), to="User", stop="Completed")
