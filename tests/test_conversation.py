"""Rounds, posts and attachments keep TaskWeaver's shapes and survive a trip through JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from taskweaver_ext.conversation import (
    Attachment,
    AttachmentType,
    Post,
    PostId,
    Round,
    RoundId,
    RoundState,
)
from taskweaver_ext.errors import ProtocolError

TASKWEAVER_ATTACHMENT_TYPES = [
    "init_plan",
    "plan",
    "current_plan_step",
    "plan_reasoning",
    "stop",
    "thought",
    "reply_type",
    "reply_content",
    "verification",
    "code_error",
    "execution_status",
    "execution_result",
    "artifact_paths",
    "revise_message",
    "function",
    "web_exploring_plan",
    "web_exploring_screenshot",
    "web_exploring_link",
    "invalid_response",
    "text",
    "shared_memory_entry",
    "image_url",
]

EXAMPLE_ROUND: dict[str, Any] = {
    "user_query": "count the rows of /sample.csv",
    "state": "created",
    "post_list": [
        {
            "message": "count the rows of /sample.csv",
            "send_from": "User",
            "send_to": "Planner",
            "attachment_list": [],
        },
        {
            "message": "Please load the file and count its rows",
            "send_from": "Planner",
            "send_to": "CodeInterpreter",
            "attachment_list": [
                {"type": "plan", "content": "1. load the file\n2. count the rows"},
                {"type": "stop", "content": "InProcess", "extra": {"note": 1}},
            ],
        },
        {"message": "done", "send_from": "CodeInterpreter", "send_to": "Planner"},
    ],
}


class MemoryEntry:
    def to_dict(self) -> dict[str, str]:
        return {"scope": "round"}


def test_attachment_types_are_taskweavers() -> None:
    assert [member.value for member in AttachmentType] == TASKWEAVER_ATTACHMENT_TYPES
    assert [member.name for member in AttachmentType] == TASKWEAVER_ATTACHMENT_TYPES


def test_constructors_take_taskweavers_positional_arguments() -> None:
    attachment = Attachment.create(AttachmentType.thought, "hm", "atta-1", {"a": 1})
    post = Post.create("hello", "User", "Planner", [attachment])
    round_ = Round.create("hello", "round-1", "failed", [post])

    assert attachment == Attachment("atta-1", AttachmentType.thought, "hm", {"a": 1})  # type: ignore[arg-type]  # a plain str, as TaskWeaver's users write it
    assert post == Post(post.id, "User", "Planner", "hello", [attachment])
    assert round_ == Round(RoundId("round-1"), "hello", "failed", [post])


def test_what_is_created_without_an_id_gets_its_own() -> None:
    posts = [Post.create(None, "User") for _ in range(100)]
    attachments = [Attachment.create("text", "") for _ in range(100)]
    rounds = [Round.create("q") for _ in range(100)]

    assert len({post.id for post in posts}) == 100
    assert len({attachment.id for attachment in attachments}) == 100
    assert len({round_.id for round_ in rounds}) == 100
    assert posts[0].id.startswith("post-")
    assert attachments[0].id.startswith("atta-")
    assert rounds[0].id.startswith("round-")
    assert (posts[0].message, posts[0].send_to) == ("", "Unknown")
    assert rounds[0].state == "created"


def test_posts_made_alone_do_not_share_a_list() -> None:
    first, second = Post.create("a", "User"), Post.create("b", "User")

    first.add_attachment(Attachment.create("text", "x"))

    assert second.attachment_list == []


def test_a_round_survives_a_trip_through_json_with_its_ids() -> None:
    original = Round.create("plot it")
    post = Post.create("here", "Planner", "User")
    post.add_attachment(Attachment.create("image_url", "see it", extra={"image_url": "data:..."}))
    original.add_post(post)
    original.change_round_state("finished")

    rebuilt = Round.from_dict(json.loads(json.dumps(original.to_dict())))

    assert rebuilt == original


def test_an_example_without_ids_loads_and_gets_them() -> None:
    round_ = Round.from_dict(EXAMPLE_ROUND)

    plan, stop = round_.post_list[1].attachment_list
    assert (plan.type, plan.content, plan.extra) == (
        AttachmentType.plan,
        "1. load the file\n2. count the rows",
        None,
    )
    assert (stop.type, stop.extra) == (AttachmentType.stop, {"note": 1})
    assert round_.post_list[2].attachment_list == []
    ids = [post.id for post in round_.post_list]
    assert len(set(ids)) == 3
    assert all(id.startswith("post-") for id in ids)


def test_an_extra_with_to_dict_is_written_as_a_dict() -> None:
    attachment = Attachment.create("shared_memory_entry", "plan", extra=MemoryEntry())

    assert attachment.to_dict()["extra"] == {"scope": "round"}


def test_attachments_are_found_and_removed_by_type() -> None:
    post = Post(PostId("post-1"), "CodeInterpreter", "Planner", "")
    for type_name in ("thought", "reply_content", "thought", "verification"):
        post.add_attachment(Attachment.create(type_name, type_name))

    thoughts = post.get_attachment(AttachmentType.thought)
    post.del_attachment([AttachmentType.thought, AttachmentType.verification])

    assert [attachment.content for attachment in thoughts] == ["thought", "thought"]
    assert [attachment.content for attachment in post.attachment_list] == ["reply_content"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"user_query": "q"}, "The round has no state"),
        ({"state": "created"}, "The round has no user_query"),
        ({"user_query": "q", "state": "lost"}, "A round cannot be 'lost'"),
        ([], "A round must be a mapping, not list"),
        (
            {"user_query": "q", "state": "created", "post_list": [{"message": "m"}]},
            "The post has no send_from, send_to",
        ),
        (
            EXAMPLE_ROUND
            | {
                "post_list": [
                    EXAMPLE_ROUND["post_list"][0]
                    | {"attachment_list": [{"type": "python", "content": "1"}]}
                ]
            },
            "There is no attachment type 'python'",
        ),
        (
            EXAMPLE_ROUND
            | {
                "post_list": [
                    EXAMPLE_ROUND["post_list"][0] | {"attachment_list": [{"type": "plan"}]}
                ]
            },
            "The attachment has no content",
        ),
    ],
)
def test_what_cannot_be_understood_is_refused_by_name(
    content: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        Round.from_dict(content)


@pytest.mark.parametrize(
    ("state", "attachments", "is_done"),
    [
        ("finished", {}, True),
        ("finished", {"stop": "Completed"}, True),
        ("finished", {"stop": "Clarification"}, True),
        ("finished", {"stop": "TaskFailure"}, False),
        ("finished", {"stop": "SecurityRisks"}, False),
        ("finished", {"execution_status": "SUCCESS"}, True),
        ("finished", {"execution_status": "FAILURE"}, False),
        ("finished", {"verification": "INCORRECT", "execution_status": "NONE"}, False),
        ("finished", {"invalid_response": "?"}, False),
        ("failed", {}, False),
    ],
)
def test_a_round_knows_whether_the_task_was_done(
    state: RoundState, attachments: dict[str, str], is_done: bool
) -> None:
    attached = [Attachment.create(kind, text) for kind, text in attachments.items()]
    answer = Post.create("so it is", "Planner", "User", attached)

    assert Round.create("q", state=state, post_list=[answer]).is_done == is_done
