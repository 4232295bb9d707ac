"""Tell the agent what a person runs: not at all, with the next message, or at once."""

from __future__ import annotations

from taskweaver_ext.ces.execution.executor import OnInput
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.conversation import Round
from taskweaver_ext.roles.code_interpreter.result_text import describe_result
from taskweaver_ext.session.known_rounds import SharedBlock
from taskweaver_ext.session.memory import SessionMemory
from taskweaver_ext.session.rounds import Rounds
from taskweaver_ext.session.settings import SessionSettings
from taskweaver_ext.tools.shown_output import ShownOutput

MAX_SHARED_RESULT_CHARS = 2000

REACT = "React to what I have just run."
"""What a person who has everything sent at once asks with each run."""


class RunSharing:
    """Shares the runs of one session as its settings say.

    Threads:
        For the thread that has the session's turn.
    """

    def __init__(self, settings: SessionSettings, memory: SessionMemory, rounds: Rounds) -> None:
        self._settings = settings
        self._memory = memory
        self._rounds = rounds

    @property
    def is_on(self) -> bool:
        """Whether the agent hears of what is run now."""
        return self._settings.auto_send != "off"

    def after_run(
        self,
        chat_round: Round,
        what: str,
        result: ExecutionResult,
        shown: ShownOutput | None = None,
        on_input: OnInput | None = None,
    ) -> None:
        """Let the agent know what came of a run; where it is to react at once, it does so here.

        A run that the person stopped is told later: whoever stops something wants to speak first.

        Args:
            what: What the person did, as `ran this python code`.
            shown: What the code wrote and displayed.
        """
        auto_send = self._settings.auto_send
        if auto_send == "off":
            return
        code = chat_round.user_query
        text = describe_result(result, shown, max_chars=MAX_SHARED_RESULT_CHARS)
        block = f"[I {what}]\n{code}\n[and this came of it]\n{text}\n[end]"
        self._memory.share_run(SharedBlock(block, chat_round.post_list[-1].id, code))
        if auto_send == "on" and result.status is not ExecutionStatus.CANCELLED:
            self._rounds.answer(Round.create(user_query=REACT), (), on_input)
