"""The part of the code interpreter that has a model write code."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from taskweaver_ext.approval import Approval, ShellPolicy
from taskweaver_ext.ces.execution.files_beneath import list_files
from taskweaver_ext.ces.execution.results import KernelContents
from taskweaver_ext.config.settings import ReplyForm
from taskweaver_ext.conversation import Attachment, AttachmentType, Post, Round, RoundId
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.llm.chat_model import Message
from taskweaver_ext.roles.base.correction import UnusableReplyError, rejected_messages
from taskweaver_ext.roles.base.history import History
from taskweaver_ext.roles.base.model_caller import ModelCaller, ModelReply
from taskweaver_ext.roles.base.prompts import append_missing, fill, load_examples, load_prompts
from taskweaver_ext.roles.base.role import PLANNER, USER, Memory, RoleContext, RoleMemory
from taskweaver_ext.roles.code_interpreter.channel_form import TOOL_PREFIX, ChannelForm
from taskweaver_ext.roles.code_interpreter.code_executor import CodeExecutor
from taskweaver_ext.roles.code_interpreter.json_form import JsonForm
from taskweaver_ext.roles.code_interpreter.reply_reading import Form, ReplyReading
from taskweaver_ext.roles.code_interpreter.result_text import NEVER_RUN, REFUSED
from taskweaver_ext.roles.code_interpreter.shown_reply import (
    EDITED,
    GeneratedCode,
    GeneratedText,
)

MAX_LISTED_FILES = 30

_SYSTEMS = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}
_SHELL_POLICIES: dict[ShellPolicy, str] = {
    "asks": "A person has to approve code in other languages than Python before it runs.",
    "refused": "Code in other languages than Python, and programs started from it, are refused.",
}
_NO_CODE_RUNS = "The user has forbidden all code in this session: it is refused. Answer in words."


class CodeGenerator:
    """Have the model write code for the last post, and show it while it is written."""

    def __init__(
        self,
        alias: str,
        context: RoleContext,
        executor: CodeExecutor,
        approval: Approval,
        reply_form: ReplyForm,
    ) -> None:
        self._alias = alias
        self._context = context
        self._executor = executor
        self._approval = approval
        self._reply_form = reply_form
        settings = context.config.code_generator
        llm_alias = settings.llm_alias or context.config.code_interpreter.llm_alias
        self._caller = ModelCaller(context, llm_alias, "code_generator")
        self._history = History(
            self._caller, context.config.round_compressor, is_eager=settings.prompt_compression
        )
        ours = Path(__file__).with_name("code_generator_prompt.yaml")
        self._prompt = load_prompts(ours, settings.prompt_file_path, "content")
        speakers = {alias, PLANNER, USER}
        place = settings.example_base_path
        examples = load_examples(place, speakers) if settings.use_example else []
        self._examples = self._render(examples)

    @functools.cached_property
    def _form(self) -> Form:
        """How replies are written; only a model's first reply has the languages looked for."""
        form: type[Form] = JsonForm if self._reply_form == "json" else ChannelForm
        prefix = self._context.config.code_interpreter.code_prefix
        return form(self._executor.languages, prefix)

    def advice_on(self, fault: Literal["form", "code", "run"]) -> str:
        """Return what the model is told about what it wrote.

        Args:
            fault: The reply could not be read; or its code was refused, or failed and left
                nothing; or its code failed halfway.
        """
        return self._prompt[f"revise_{fault}"]

    def generate(
        self, memory: Memory, post: PostEventProxy
    ) -> tuple[ModelReply, GeneratedCode | GeneratedText | UnusableReplyError]:
        """Return what the model wrote, and what it means or why it means nothing.

        Raises:
            RoundCancelledError: The round was stopped.
            ModelError: There was no reply.
        """
        reply, reading = self._history.ask_until_it_fits(lambda: self._ask(memory, post))
        try:
            return reply, reading.finish(reply)
        except UnusableReplyError as problem:
            reading.abandon(str(problem))
            return reply, problem

    def restore(self, memory: RoleMemory) -> None:
        """Go on with what the role knew in an earlier process."""
        self._history.restore(memory)

    def forget(self, rounds: Collection[RoundId]) -> None:
        """Let go of a summary of rounds that are no longer what they were."""
        self._history.forget(rounds)

    def _ask(self, memory: Memory, post: PostEventProxy) -> tuple[ModelReply, ReplyReading]:
        reading = self._form.read(post)
        rounds = memory.rounds_of(self._alias)
        contents = self._executor.kernel_contents()
        messages = self._history.messages(self._head(contents), rounds, self._render, post)
        # At the end, since it changes: models remember a prompt only as far as it stays the same.
        last = messages.pop()
        present = self._context.masked(f"{_list_variables(contents)} {self._list_files()}")
        messages.append(Message(last.role, f"{last.content}\n\n({present})"))
        try:
            reply = self._caller.ask(
                messages,
                post,
                schema=self._form.schema(),
                max_tokens=self._history.reply_tokens,
                on_text=reading.feed,
            )
        except BaseException as error:
            reading.abandon(str(error) or type(error).__name__)
            raise
        return reply, reading

    def _head(self, contents: KernelContents | None) -> list[Message]:
        form, schema = self._prompt[self._form.prompt_name], self._form.schema()
        template = append_missing(
            self._prompt["content"],
            CODE_GENERATION_REQUIREMENTS="{CODE_GENERATION_REQUIREMENTS}",
            PLUGINS="Functions that exist already, to be called and not imported:\n{PLUGINS}",
        )
        values = {
            "RESPONSE_FORM": form,
            "RESPONSE_JSON_SCHEMA": form if schema is None else json.dumps(schema),
            "TOOLS": ", ".join(TOOL_PREFIX + name for name in self._executor.languages),
            "ENVIRONMENT_CONTEXT": _describe_place(
                self._executor.languages,
                contents,
                is_contained=self._executor.is_contained,
                approval=self._approval,
            ),
            "CODE_GENERATION_REQUIREMENTS": self._requirements(),
            "PLUGINS": "\n".join(plugin.describe() for plugin in self._executor.plugins)
            or "(none)",
            "ROLE_NAME": self._alias,
        }
        system = Message("system", fill(template, values))
        if not self._examples:
            return [system]
        start = Message("user", self._prompt["start_of_conversation"])
        return [system, *self._examples, start]

    def _list_files(self) -> str:
        names = sorted(list_files(self._executor.cwd).files)
        listed = ", ".join(names[:MAX_LISTED_FILES]) or "(none)"
        more = f" and {len(names) - MAX_LISTED_FILES} more" if len(names) > MAX_LISTED_FILES else ""
        return f"Files in the working directory: {listed}{more}."

    def _requirements(self) -> str:
        settings = self._context.config.code_interpreter
        lines: list[str] = []
        if settings.code_verification_on:
            if settings.allowed_modules is not None:
                modules = ", ".join(settings.allowed_modules) or "none"
                template = self._prompt["requirements_modules"]
                lines.append(fill(template, {"MODULES": modules}))
            functions = ", ".join(settings.blocked_functions)
            template = self._prompt["requirements_functions"]
            lines.append(fill(template, {"FUNCTIONS": functions}))
        return "\n".join(lines)

    def _render(self, rounds: Sequence[Round]) -> list[Message]:
        messages: list[Message] = []
        for one in rounds:
            for post in one.post_list:
                if post.send_from != self._alias:
                    text = f"From: {post.send_from}\nTask: {post.message}"
                    messages.append(Message("user", text))
                elif not post.get_attachment(AttachmentType.invalid_response):
                    text = self._form.reply_text(post).replace("{ROLE_NAME}", self._alias)
                    messages.append(Message("assistant", text))
                    messages += _feedback(post)
                elif one is rounds[-1]:
                    messages += rejected_messages(post)
        return messages


def _feedback(post: Post) -> list[Message]:
    """Return what the model is told about the code of a post; nothing if there was none."""

    def last(kind: AttachmentType) -> Attachment | None:
        return next(reversed(post.get_attachment(kind)), None)

    status = last(AttachmentType.execution_status)
    code = last(AttachmentType.reply_content)
    if status is None or code is None:
        return []
    parts = ["The user has edited the code."] if code.extra == EDITED else []
    verification = last(AttachmentType.verification)
    error = last(AttachmentType.code_error)
    if verification is not None and verification.content == "INCORRECT" and error is not None:
        parts.append(f"The code was not run: {error.content}")
    if status.content == REFUSED:
        parts.append(f"The code was not run. {post.message}")
    result = last(AttachmentType.execution_result)
    if result is not None and status.content not in NEVER_RUN:
        parts.append(f"The code was run.\n{result.content}")
    advice = last(AttachmentType.revise_message)
    if advice is not None:
        parts.append(advice.content)
    return [Message("user", "\n".join(parts))] if parts else []


def _describe_place(
    languages: Sequence[str],
    contents: KernelContents | None,
    *,
    is_contained: bool,
    approval: Approval,
) -> str:
    """Return what the model is told about where its code runs, as the lines of a list."""
    lines = [f"- Languages: {', '.join(languages)}."]
    if contents is not None:
        system = _SYSTEMS.get(contents.system, contents.system)
        packages = ", ".join(contents.packages) or "none"
        lines.append(f"- Python {contents.python} on {system}.")
        lines.append(f"- Of the well-known packages these are installed: {packages}.")
    if is_contained:
        lines.append("- It is a container without a network.")
    rules = approval.rules
    shell = approval.outlook(is_contained=is_contained)
    if rules.mode == "deny":
        lines.append(f"- {_NO_CODE_RUNS}")
    elif shell in _SHELL_POLICIES:
        lines.append(f"- {_SHELL_POLICIES[shell]}")
        if rules.patterns:
            lines.append(f"- These bash commands run: {', '.join(rules.patterns)}.")
    return "\n".join(lines)


def _list_variables(contents: KernelContents | None) -> str:
    """Return in a sentence which variables there are; without a kernel there are none."""
    if contents is None:
        return "Python variables: (none)."
    listed = ", ".join(f"{name}: {kind}" for name, kind in contents.variables) or "(none)"
    hidden = contents.variable_count - len(contents.variables)
    return f"Python variables: {listed}{f' and {hidden} older ones' if hidden > 0 else ''}."
