"""A session read back: its events, from whatever source, as messages, cells and notices."""

from taskweaver_ext.session.blocks.fold import LookAhead, fold_blocks, look_ahead, read_blocks
from taskweaver_ext.session.blocks.folders import OWN_FOLDER, folder_of
from taskweaver_ext.session.blocks.numbers import BlockNumbers, numbered
from taskweaver_ext.session.blocks.outputs import MAX_OUTPUT_CHARS, OutputCollector
from taskweaver_ext.session.blocks.types import (
    TERMINAL,
    ArtifactOutput,
    Attached,
    Block,
    Cell,
    CellStatus,
    DisplayOutput,
    LateText,
    LeftOut,
    LogOutput,
    Message,
    Output,
    ProposedCode,
    QuestionOutput,
    SessionNotice,
    TextOutput,
)

__all__ = [
    "MAX_OUTPUT_CHARS",
    "OWN_FOLDER",
    "TERMINAL",
    "ArtifactOutput",
    "Attached",
    "Block",
    "BlockNumbers",
    "Cell",
    "CellStatus",
    "DisplayOutput",
    "LateText",
    "LeftOut",
    "LogOutput",
    "LookAhead",
    "Message",
    "Output",
    "OutputCollector",
    "ProposedCode",
    "QuestionOutput",
    "SessionNotice",
    "TextOutput",
    "fold_blocks",
    "folder_of",
    "look_ahead",
    "numbered",
    "read_blocks",
]
