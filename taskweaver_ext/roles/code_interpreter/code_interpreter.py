"""The role that writes code, checks it, runs it, and corrects it when it fails."""

from __future__ import annotations

from collections.abc import Collection

from taskweaver_ext.approval import Approval, ApprovalAnswer
from taskweaver_ext.ces.execution.contract import (
    ContractCheck,
    ExecutionFailure,
    check_contract,
    execution_failure,
)
from taskweaver_ext.ces.execution.files_beneath import list_files
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionStatus
from taskweaver_ext.config.settings import ReplyForm
from taskweaver_ext.conversation import AttachmentType, Post, PostId, RoundId
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.roles.base.correction import UnusableReplyError, open_post, reject
from taskweaver_ext.roles.base.prompts import fill
from taskweaver_ext.roles.base.role import Memory, Role, RoleContext, RoleEntry, RoleMemory
from taskweaver_ext.roles.code_interpreter.code_executor import CodeExecutor, CodeRun
from taskweaver_ext.roles.code_interpreter.code_generator import CodeGenerator
from taskweaver_ext.roles.code_interpreter.result_text import (
    NOT_RUN,
    REFUSED,
    artifact_paths,
    describe_result,
    status_name,
)
from taskweaver_ext.roles.code_interpreter.shown_reply import GeneratedCode, GeneratedText
from taskweaver_ext.roles.code_interpreter.verification import Verdict, inspect_python
from taskweaver_ext.streaming.code_cleaning import find_leftover

MAX_EDITS = 10
"""How often a person is asked about code that was edited and still cannot run."""


class CodeInterpreter(Role):
    """Turn a task in plain words into code that has run.

    Each attempt is a post of its own; an attempt that failed is addressed to the
    role itself, until `code_interpreter.max_retry_count` is reached.
    """

    def __init__(
        self,
        entry: RoleEntry,
        context: RoleContext,
        executor: CodeExecutor,
        approval: Approval,
        reply_form: ReplyForm = "json",
    ) -> None:
        super().__init__(entry, context)
        self._settings = context.config.code_interpreter
        self._executor = executor
        self._approval = approval
        self._generator = CodeGenerator(entry.alias, context, executor, approval, reply_form)

    @property
    def intro(self) -> str:
        """What the planner is told, with the plugins that are there now."""
        descriptions = "\n".join(
            f"    {plugin.signature}  # {' '.join(plugin.description.split())}"
            for plugin in self._executor.plugins
        )
        values = {
            "plugin_description": descriptions or "    (none)",
            "languages": ", ".join(self._executor.languages),
        }
        return fill(self.entry.intro, values)

    def reply(self, memory: Memory) -> Post:
        """Make one attempt at the task."""
        with open_post(self) as post:
            self._executor.start(post)
            reply, generated = self._generator.generate(memory, post)
            if isinstance(generated, UnusableReplyError):
                reject(post, reply, str(generated), self._generator.advice_on("form"))
                self._try_again_or_report(post, memory)
                return post.end()
            if isinstance(generated, GeneratedText):
                post.update_send_to(memory.asker_of(self.alias))
                return post.end()
            return self._run(post, memory, generated)

    def restore(self, memory: RoleMemory) -> None:
        """Go on with what the role knew in an earlier process."""
        self._generator.restore(memory)

    def forget(self, rounds: Collection[RoundId]) -> None:
        """Let go of what the role has made of rounds that are no longer what they were."""
        self._generator.forget(rounds)

    def _run(self, post: PostEventProxy, memory: Memory, generated: GeneratedCode) -> Post:
        try:
            return self._check_and_run(post, memory, generated)
        except BaseException as error:  # the panel must not go on for ever
            reason = str(error) or type(error).__name__
            generated.panel.finish_execution(ExecutionFailure(code="stopped", message=reason))
            raise

    def _check_and_run(
        self, post: PostEventProxy, memory: Memory, generated: GeneratedCode
    ) -> Post:
        post.update_status("checking the code")
        verdict = self._inspect(generated.language, generated.code)
        if verdict.errors:
            self._reject(post, generated, "\n".join(verdict.errors))
            self._try_again_or_report(post, memory, self._generator.advice_on("code"))
            return post.end()
        answer = self._approve(generated, verdict, post.post.id)
        is_judged = _can_be_judged(
            generated.language, self._inspect(generated.language, generated.code)
        )
        is_checked = is_judged and self._settings.code_verification_on
        post.update_attachment("CORRECT" if is_checked else "NONE", AttachmentType.verification)
        if answer.is_approved:
            return self._execute(post, memory, generated)
        self._refuse(post, generated, answer.reason)
        if answer.is_final:
            post.update_send_to(memory.asker_of(self.alias))
        else:
            self._try_again_or_report(post, memory, "Do it in another way.")
        return post.end()

    def _approve(
        self, generated: GeneratedCode, verdict: Verdict, post_id: PostId
    ) -> ApprovalAnswer:
        """Ask for approval where that is needed; code that is edited then is verified again.

        What cannot run after an edit is the person's to mend: the model hears nothing of it.
        """
        language, code, problem = generated.language, generated.code, ""
        reasons = _reasons_to_ask(language, verdict)
        for _ in range(1 + MAX_EDITS):
            answer = self._approval.decide(
                language,
                code,
                is_verified=_can_be_judged(language, verdict),
                is_contained=self._executor.is_contained,
                reasons=reasons,
                execution_id=ExecutionId(post_id),
                block=self.context.block_number(post_id),
                can_run=not problem,
            )
            self.context.cancellation.check()
            if not answer.is_approved:
                return answer
            code = code if answer.code is None else answer.code
            verdict = self._inspect(language, code)
            problem = "\n".join(verdict.errors)
            if not problem:
                if code != generated.code:
                    generated.shown.replace_code(code)
                return answer
            reasons = [f"The edited code cannot run. {problem}", "Edit it again, or refuse it."]
        return ApprovalAnswer(False, reason="The user edited the code until it could not run.")

    def _inspect(self, language: str, code: str) -> Verdict:
        leftover = find_leftover(code, language)
        if leftover is not None:
            return Verdict((leftover.message,))
        if language != "python":
            return Verdict()
        verdict = self._judge(code)
        prefix = self._settings.code_prefix
        if prefix and code.startswith(prefix):
            # It is the project's own, and may do what a model's code may not.
            own = self._judge(prefix)
            verdict = Verdict(
                tuple(error for error in verdict.errors if error not in own.errors),
                tuple(use for use in verdict.shell_uses if use not in own.shell_uses),
            )
        return verdict if self._settings.code_verification_on else Verdict((), verdict.shell_uses)

    def _judge(self, code: str) -> Verdict:
        return inspect_python(
            code,
            blocked_functions=self._settings.blocked_functions,
            allowed_modules=self._settings.allowed_modules,
        )

    def _reject(self, post: PostEventProxy, generated: GeneratedCode, reason: str) -> None:
        """Say in the post why its code fails verification."""
        post.update_attachment("INCORRECT", AttachmentType.verification)
        post.update_attachment(reason, AttachmentType.code_error)
        post.update_attachment(NOT_RUN, AttachmentType.execution_status)
        generated.panel.finish_execution(
            ExecutionFailure(code="refused", message=reason, where="verification")
        )
        post.update_message(f"The code was not run. {reason}")

    def _refuse(self, post: PostEventProxy, generated: GeneratedCode, reason: str) -> None:
        """Say in the post that its code was not allowed to run."""
        post.update_attachment(REFUSED, AttachmentType.execution_status)
        generated.panel.finish_execution(
            ExecutionFailure(code="refused", message=reason, where="approval")
        )
        post.update_message(reason)

    def _execute(self, post: PostEventProxy, memory: Memory, generated: GeneratedCode) -> Post:
        panel = generated.panel
        before = list_files(self._executor.cwd) if panel.contract else None
        panel.start_execution()
        run = self._executor.run(generated.language, generated.code, post)
        result = run.result
        check = check_contract(self._executor.cwd, panel.contract, before) if before else None
        failure = execution_failure(
            has_run_well=result.is_success,
            error=_last_line(result.error),
            problems=check.problems if check else (),
        )
        panel.finish_execution(failure)
        self._report(post, run, check)
        is_stopped = result.status is ExecutionStatus.CANCELLED
        if failure is None or is_stopped:
            post.update_send_to(memory.asker_of(self.alias))
        else:
            is_halfway = generated.language == "python" and result.variables_survived
            advice = self._generator.advice_on("run" if is_halfway else "code")
            self._try_again_or_report(post, memory, advice)
        return post.end()

    def _report(self, post: PostEventProxy, run: CodeRun, check: ContractCheck | None) -> None:
        result = run.result
        text = self.context.masked(describe_result(result, run.shown, check))
        post.update_attachment(status_name(result), AttachmentType.execution_status)
        post.update_attachment(text, AttachmentType.execution_result)
        paths = artifact_paths(result.artifact, self._executor.cwd)
        if check is not None:
            kept = [str(self._executor.cwd / file.path) for file in check.kept]
            paths += map(self.context.masked, kept)
        if paths:
            post.update_attachment("\n".join(paths), AttachmentType.artifact_paths, extra=paths)
        post.update_message(text)

    def _try_again_or_report(self, post: PostEventProxy, memory: Memory, advice: str = "") -> None:
        """Address the post to the role itself, or to the role that asked after enough attempts."""
        attempts = memory.corrections_of(self.alias) + 1
        if attempts <= self._settings.max_retry_count:
            if advice:
                post.update_attachment(advice, AttachmentType.revise_message)
            post.update_send_to(self.alias)
            return
        post.update_attachment(f"Given up after {attempts} attempts.", AttachmentType.text)
        if not post.message_is_end:
            post.update_message(f" (given up after {attempts} attempts)")
        post.update_send_to(memory.asker_of(self.alias))


def _can_be_judged(language: str, verdict: Verdict) -> bool:
    """Whether code is of the kind that verification can judge."""
    return language == "python" and not verdict.shell_uses


def _reasons_to_ask(language: str, verdict: Verdict) -> list[str]:
    """Say why a person has to decide about code."""
    if verdict.shell_uses:
        return [f"It can start other programs ({'; '.join(verdict.shell_uses)})."]
    if language == "python":
        return ["You are asked about all code of the agent."]
    what = "Shell commands" if language == "bash" else f"Programs in {language}"
    return [f"{what} cannot be checked before they run."]


def _last_line(error: str | None) -> str | None:
    """Return what a traceback comes to."""
    lines = (error or "").strip().splitlines()
    return lines[-1] if lines else None
