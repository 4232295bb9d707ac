"""Prompts and examples: YAML files in, messages for a model out."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from taskweaver_ext.config.data_files import DataFileError
from taskweaver_ext.config.yaml_files import read_yaml
from taskweaver_ext.conversation import Round
from taskweaver_ext.errors import ConfigError, ProtocolError
from taskweaver_ext.llm.chat_model import Message
from taskweaver_ext.roles.base.reply_json import WRAPPER

_logger = logging.getLogger(__name__)


def load_prompts(ours: Path, own: Path | None, needed: str) -> dict[str, str]:
    """Return the texts of a role by name: a project's own, and ours for those it does not have.

    Args:
        needed: The text that a project's own file must have.

    Raises:
        ConfigError: A file cannot be read, or lacks what it needs.
    """
    texts = _read_texts(ours)
    if own is None:
        return texts
    others = _read_texts(own)
    if needed not in others:
        raise ConfigError(f"The prompt file {own} has no text {needed}.")
    return texts | others


def _read_texts(path: Path) -> dict[str, str]:
    try:
        content = read_yaml(path)
    except (OSError, DataFileError) as error:
        raise ConfigError(f"The prompt file {path} cannot be read: {error}") from error
    entries = content.items() if isinstance(content, dict) else ()
    return {str(name): text for name, text in entries if isinstance(text, str)}


def append_missing(template: str, **texts: str) -> str:
    """Append the text of each name that the prompt does not hold as `{name}`."""
    for name, text in texts.items():
        if "{" + name + "}" not in template:
            template = f"{template}\n\n{text}"
    return template


def fill(template: str, values: Mapping[str, str]) -> str:
    """Put values in the place of `{name}`; braces that name no value are left alone."""
    for name, value in values.items():
        template = template.replace("{" + name + "}", value)
    return template


def load_examples(folder: Path, roles: Collection[str]) -> list[Round]:
    """Read the enabled example conversations among the given roles.

    A file that cannot be used is named in the log and left out.
    """
    rounds: list[Round] = []
    for path in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml"))):
        try:
            example = _read_example(path)
        except (OSError, DataFileError, ProtocolError) as error:
            _logger.warning("The example %s is left out: %s", path, error)
            continue
        posts = [post for one in example for post in one.post_list]
        speakers = {name for post in posts for name in (post.send_from, post.send_to)}
        if speakers <= set(roles):
            rounds += example
    return rounds


def _read_example(path: Path) -> list[Round]:
    content = read_yaml(path)
    if not isinstance(content, dict) or not isinstance(content.get("rounds"), list):
        raise ProtocolError("it must hold a mapping with a list of rounds.")
    if content.get("enabled", True) is False:
        return []
    return [Round.from_dict(one) for one in content["rounds"]]


def as_reply(fields: Mapping[str, str]) -> str:
    """Return the fields of a reply as the JSON that a model writes."""
    return json.dumps({WRAPPER: fields}, ensure_ascii=False)


def reply_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a reply with these fields, all of them needed, in this order."""
    response = {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {WRAPPER: response},
        "required": [WRAPPER],
        "additionalProperties": False,
    }


def merged(messages: Sequence[Message]) -> list[Message]:
    """Join neighbouring messages of one role: some providers want them to alternate."""
    result: list[Message] = []
    for message in messages:
        if result and result[-1].role == message.role:
            text = f"{result[-1].content}\n\n{message.content}"
            result[-1] = Message(message.role, text)
        else:
            result.append(message)
    return result
