"""What a person asks of a session: one request at a time, waited for or on a thread of its own."""

from __future__ import annotations

from collections.abc import Sequence

from taskweaver_ext.ces.execution.executor import OnInput
from taskweaver_ext.ces.execution.results import ExecutionResult
from taskweaver_ext.conversation import Round
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.types import SessionEventHandler
from taskweaver_ext.session.files import SessionFile
from taskweaver_ext.session.rounds import Rounds
from taskweaver_ext.session.session_files import SessionFiles
from taskweaver_ext.session.sharing import RunSharing
from taskweaver_ext.session.submitted import Submitted
from taskweaver_ext.session.terminal_run import UseTerminal
from taskweaver_ext.session.turns import SessionTurns


class Requests:
    """Do what a person asks, in the turn of the session.

    Threads:
        For any thread. Requests exclude each other: a second one while one is under way is
        refused with a SessionError.
    """

    def __init__(
        self,
        turns: SessionTurns,
        emitter: SessionEventEmitter,
        rounds: Rounds,
        sharing: RunSharing,
        files: SessionFiles,
    ) -> None:
        self._turns = turns
        self._emitter = emitter
        self._rounds = rounds
        self._sharing = sharing
        self._files = files

    def answer(
        self,
        message: str,
        handler: SessionEventHandler | None,
        files: Sequence[SessionFile],
        on_input: OnInput | None,
    ) -> Round:
        """Have the roles answer a message, and return everything that was said."""
        with self._turns.claimed(), self._emitter.handle_events_ctx(handler):
            names = self._files.place(files)
            return self._rounds.answer(Round.create(user_query=message), names, on_input)

    def submit_message(
        self, message: str, files: Sequence[SessionFile], on_input: OnInput | None
    ) -> Submitted[Round]:
        """Have the roles answer a message on a thread of its own, once the files are there."""
        chat_round = Round.create(user_query=message)
        token = self._turns.reserve()
        try:
            names = self._files.place(files)
        except BaseException:
            self._turns.release()
            raise

        def answer() -> Round:
            with self._turns.reserved():
                return self._rounds.answer(chat_round, names, on_input)

        return Submitted(chat_round.id, answer, token)

    def run(
        self,
        language: str,
        code: str,
        handler: SessionEventHandler | None,
        on_input: OnInput | None,
        repeats: int | None,
    ) -> ExecutionResult:
        """Run what a person typed, and let the agent know as the settings say."""
        with self._turns.claimed(), self._emitter.handle_events_ctx(handler):
            return self._run(Round.create(user_query=code), language, on_input, repeats)

    def submit_run(
        self, language: str, code: str, on_input: OnInput | None, repeats: int | None
    ) -> Submitted[ExecutionResult]:
        """The same, on a thread of its own."""
        chat_round = Round.create(user_query=code)
        token = self._turns.reserve()

        def run() -> ExecutionResult:
            with self._turns.reserved():
                return self._run(chat_round, language, on_input, repeats)

        return Submitted(chat_round.id, run, token)

    def run_in_terminal(
        self, command: str, use_terminal: UseTerminal, on_input: OnInput | None = None
    ) -> ExecutionResult:
        """Have the caller run a person's command on its terminal, where the shell is."""
        with self._turns.claimed():
            chat_round = Round.create(user_query=command)
            result = self._rounds.run_in_terminal(
                chat_round, use_terminal, is_shared=self._sharing.is_on
            )
            what = "ran this in my terminal"
            self._sharing.after_run(chat_round, what, result, on_input=on_input)
            return result

    def _run(
        self, chat_round: Round, language: str, on_input: OnInput | None, repeats: int | None
    ) -> ExecutionResult:
        is_shared = self._sharing.is_on
        run = self._rounds.run(chat_round, language, on_input, repeats, is_shared=is_shared)
        what = f"ran this {language} code"
        self._sharing.after_run(chat_round, what, run.result, run.shown, on_input)
        return run.result
