"""The role that talks to the user: it plans, hands out steps, and answers."""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from taskweaver_ext.config.settings import ReplyForm
from taskweaver_ext.conversation import AttachmentType, Post, RoleName, Round, RoundId
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.llm.chat_model import Message
from taskweaver_ext.roles.base.correction import (
    UnusableReplyError,
    open_post,
    reject,
    rejected_messages,
)
from taskweaver_ext.roles.base.history import History
from taskweaver_ext.roles.base.live_fields import LiveFields
from taskweaver_ext.roles.base.model_caller import ModelCaller, ModelReply, ReplyEnd
from taskweaver_ext.roles.base.prompts import fill, load_examples, load_prompts, reply_schema
from taskweaver_ext.roles.base.role import USER, Memory, Role, RoleContext, RoleEntry, RoleMemory
from taskweaver_ext.roles.planner.planner_reply import (
    ATTACHMENTS,
    FIELDS,
    FORM_NAMES,
    PlannerReader,
    reply_text,
)

MAX_CORRECTIONS = 3

STOP_STATES = (
    "InProcess",
    "Completed",
    "Clarification",
    "AdditionalInformation",
    "SecurityRisks",
    "TaskFailure",
)
_WAY_OUT = "Ask in other words, or another model."
_WAYS_OUT: dict[ReplyEnd, str] = {
    "broken": "Check the connection to the model's provider.",
    "length": "Raise llm.max_tokens, or ask for less at a time.",
}
"""What a person can do about replies that are never of use, by how they end."""
_DESCRIPTIONS = {
    "plan_reasoning": "Why the plan is as it is, and what the last report means for it.",
    "init_plan": "The first draft: numbered steps, one per line.",
    "plan": "The steps as they stand now: numbered, one per line.",
    "current_plan_step": "The step that the message is about.",
    "stop": "Whether the round goes on or why it ends.",
    "send_to": "Who reads the message.",
    "message": "What that reader is told.",
}


class Planner(Role):
    """Plan, hand out steps, and answer the user."""

    def __init__(
        self,
        entry: RoleEntry,
        context: RoleContext,
        workers: Sequence[Role] = (),
        reply_form: ReplyForm = "json",
    ) -> None:
        super().__init__(entry, context)
        self._reply_form: ReplyForm = reply_form
        settings = context.config.planner
        self._workers = tuple(workers)
        self._caller = ModelCaller(context, settings.llm_alias, "planner")
        self._history = History(
            self._caller, context.config.round_compressor, is_eager=settings.prompt_compression
        )
        ours = Path(__file__).with_name("planner_prompt.yaml")
        self._prompt = load_prompts(ours, settings.prompt_file_path, "instruction_template")
        speakers = {self.alias, USER, *(worker.alias for worker in workers)}
        place = settings.example_base_path
        examples = load_examples(place, speakers) if settings.use_example else []
        self._examples = self._render(examples)

    def reply(self, memory: Memory) -> Post:
        """Say what happens next: to a worker, or to the user."""
        with open_post(self) as post:
            live = LiveFields(post, ATTACHMENTS, "message")
            reader = PlannerReader(live, self._reply_form)
            reply = self._ask(memory, post, reader)
            try:
                fields = self._read(reply, reader.finish(), memory)
            except UnusableReplyError as problem:
                return self._ask_again(post, reply, str(problem), memory)
            live.complete(fields)
            post.update_send_to(fields["send_to"])
            return post.end()

    def restore(self, memory: RoleMemory) -> None:
        """Go on with what the planner knew in an earlier process."""
        self._history.restore(memory)

    def forget(self, rounds: Collection[RoundId]) -> None:
        """Let go of a summary of rounds that are no longer what they were."""
        self._history.forget(rounds)

    def _ask(self, memory: Memory, post: PostEventProxy, reader: PlannerReader) -> ModelReply:
        rounds = memory.rounds_of(self.alias)
        head = self._head()
        schema = self._schema() if self._reply_form == "json" else None

        def ask() -> ModelReply:
            messages = self._history.messages(head, rounds, self._render, post)
            room = self._history.reply_tokens
            return self._caller.ask(
                messages, post, schema=schema, max_tokens=room, on_text=reader.feed
            )

        return self._history.ask_until_it_fits(ask)

    def _read(
        self, reply: ModelReply, fields: dict[str, str] | None, memory: Memory
    ) -> dict[str, str]:
        """Return the fields of a usable reply; raises UnusableReplyError."""
        if fields is None:
            what = "is no JSON with the fields of the schema" if reply.text.strip() else "is empty"
            raise UnusableReplyError(reply.problem or f"The reply {what}.")
        fields["stop"] = _stop_state(fields.get("stop", ""))
        fields["send_to"] = self._recipient(fields)
        missing = [] if fields.get("message", "").strip() else ["message"]
        if fields["send_to"] != USER and not self._has_plan(fields, memory):
            missing.append("plan")
        if missing:
            fault = reply.problem or f"The reply lacks {' and '.join(missing)}."
            raise UnusableReplyError(fault)
        return fields

    def _recipient(self, fields: dict[str, str]) -> RoleName:
        wanted = fields.get("send_to", "").strip()
        names = [USER, *(worker.alias for worker in self._workers)]
        for name in names:
            if name.lower() == wanted.lower():
                return name
        if not wanted and fields["stop"] not in ("", "InProcess"):
            return USER
        raise UnusableReplyError(f"send_to must be one of {', '.join(names)}, not {wanted!r}.")

    def _has_plan(self, fields: dict[str, str], memory: Memory) -> bool:
        if fields.get("plan") or fields.get("init_plan"):
            return True
        posts = memory.current_round.post_list
        return any(post.get_attachment(AttachmentType.plan) for post in posts)

    def _ask_again(
        self, post: PostEventProxy, reply: ModelReply, problem: str, memory: Memory
    ) -> Post:
        reject(post, reply, problem, self._prompt["revise"])
        count = memory.corrections_of(self.alias)
        if count >= MAX_CORRECTIONS:
            raise ProtocolError(
                f"The model's replies could not be used {count + 1} times in a row."
                f" {_WAYS_OUT.get(reply.end, _WAY_OUT)} What was wrong with the last one: {problem}"
            )
        post.update_send_to(self.alias)
        return post.end()

    def _head(self) -> list[Message]:
        intros = (f"## {worker.alias}\n{worker.intro}" for worker in self._workers)
        values = {
            "response_form": self._prompt[FORM_NAMES[self._reply_form]],
            # The day, not the minute: models remember a prompt only as far as it stays the same.
            "environment_context": f"Today is {datetime.datetime.now():%A, %Y-%m-%d}.",
            "worker_intro": "\n\n".join(intros),
            "response_json_schema": json.dumps(self._schema()),
        }
        system = Message("system", fill(self._prompt["instruction_template"], values))
        if not self._examples:
            return [system]
        start = Message("user", self._prompt["start_of_conversation"])
        return [system, *self._examples, start]

    def _schema(self) -> dict[str, Any]:
        properties: dict[str, Any] = {
            name: {"type": "string", "description": _DESCRIPTIONS[name]} for name in FIELDS
        }
        properties["stop"]["enum"] = list(STOP_STATES)
        properties["send_to"]["enum"] = [*(worker.alias for worker in self._workers), USER]
        return reply_schema(properties)

    def _render(self, rounds: Sequence[Round]) -> list[Message]:
        messages: list[Message] = []
        for one in rounds:
            for post in one.post_list:
                if post.send_from != self.alias:
                    text = f"From: {post.send_from}\nMessage: {post.message}"
                    messages.append(Message("user", text))
                elif post.send_to != self.alias:
                    messages.append(Message("assistant", reply_text(post, self._reply_form)))
                elif one is rounds[-1]:
                    messages += rejected_messages(post)
            if one.state == "failed":
                messages.append(Message("user", "(This round ended without an answer.)"))
        return messages


def _stop_state(text: str) -> str:
    for state in STOP_STATES:
        if state.lower() == text.strip().lower():
            return state
    return ""
