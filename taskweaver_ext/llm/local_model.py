"""A GGUF file run in this process through `xllamacpp`: no key, no network."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from taskweaver_ext.llm.chat_chunks import ChunkReader
from taskweaver_ext.llm.chat_model import (
    JsonSchema,
    Message,
    ModelEvent,
    ModelStream,
    PromptRead,
)
from taskweaver_ext.llm.model_errors import (
    ContextTooLongError,
    ModelSetupError,
    ReplyCancelledError,
    RequestRefusedError,
)
from taskweaver_ext.llm.model_settings import ModelSettings
from taskweaver_ext.llm.openai_model import chat_request, json_schema_format
from taskweaver_ext.llm.reply_stream import Deliver, ReplyStream
from taskweaver_ext.llm.request_options import RequestBody

DEFAULT_CONTEXT_TOKENS = 8192

BATCH_TOKENS = 64
"""How much of a prompt is read in one go: reading can be stopped only in between."""

MOST_THREADS = 8
"""More threads than this wait for memory, not for processors."""

PROMPT_CACHE_MEGABYTES = 512
"""Room for prompts read earlier: roles take turns with different ones."""

TURN_SECONDS = 1.0
"""How often a stream that waits for its turn shows that it is alive."""


class LocalModel:
    """A model file, loaded when the first reply is asked for and kept until `close`.

    Replies are made one at a time; further streams wait for their turn.

    Threads:
        `_turn` is held by the stream that uses `_server`, loading included.
    """

    def __init__(self, path: Path, settings: ModelSettings) -> None:
        self._path = path
        self._settings = settings
        self._is_closing = threading.Event()
        self._turn = threading.Lock()
        self._server: Any = None
        self._remove_socket_folder: weakref.finalize[..., LocalModel] | None = None

    @property
    def name(self) -> str:
        """Return the name of the file, and that it runs here."""
        return f"{self._path.stem} on this machine"

    @property
    def context_tokens(self) -> int:
        """Return the size of the context that the model is loaded with."""
        return self._settings.context_tokens or DEFAULT_CONTEXT_TOKENS

    def stream(
        self,
        messages: Sequence[Message],
        *,
        schema: JsonSchema | None = None,
        max_tokens: int | None = None,
    ) -> ModelStream:
        """Prepare a reply; see `ChatModel.stream`. The schema is kept to the letter."""
        body = _request_body(self._settings, messages, schema, max_tokens)
        return ReplyStream(
            _LocalReply(self, body), model_name=self.name, limits=self._settings.limits
        )

    def close(self) -> None:
        """Stop the reply under way and unload the model."""
        self._is_closing.set()
        with self._turn:
            self._server = None
            self._forget_socket_folder()

    def run(self, body: RequestBody, deliver: Deliver) -> None:
        """Make one reply on the thread that calls; for the streams of this model."""

        def deliver_while_open(event: ModelEvent | None) -> bool:
            return deliver(event) and not self._is_closing.is_set()

        while not self._turn.acquire(timeout=TURN_SECONDS):
            if not deliver_while_open(None):
                return
        try:
            if self._is_closing.is_set():
                raise ReplyCancelledError("The model has been closed.")
            if self._server is None:
                self._server = self._load()
            _complete(self._server, body, deliver_while_open, self.context_tokens)
        finally:
            self._turn.release()

    def _load(self) -> Any:  # noqa: ANN401  an object of the library
        if not self._path.is_file():
            raise ModelSetupError(
                f"There is no model file {self._path}. Set llm.model to a GGUF file, or fetch one "
                "with: taskweaver-ext model fetch"
            )
        try:
            import xllamacpp  # type: ignore[import-untyped]  # it brings no types
        except ImportError:
            raise ModelSetupError(
                "llm.api_type 'local' needs the package xllamacpp: "
                "pip install 'taskweaver_ext[local]'"
            ) from None
        try:
            return xllamacpp.Server(self._parameters(xllamacpp))
        except (RuntimeError, ValueError) as error:
            self._forget_socket_folder()
            raise ModelSetupError(
                f"The model file {self._path} cannot be loaded ({error}). It may be damaged, or "
                "too large for this machine's memory."
            ) from error

    def _parameters(self, library: Any) -> Any:  # noqa: ANN401
        parameters = library.CommonParams()
        parameters.model.path = str(self._path)
        parameters.n_ctx = self.context_tokens
        parameters.n_batch = parameters.n_ubatch = BATCH_TOKENS
        parameters.n_parallel = 1
        parameters.cache_ram_mib = PROMPT_CACHE_MEGABYTES
        parameters.warmup = False
        parameters.offline = True
        parameters.ui = False
        parameters.verbosity = -1
        threads = self._settings.threads or _default_threads()
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
        # The library always listens somewhere: where only we can reach, for a secret key.
        parameters.api_keys = [secrets.token_hex(32)]
        if os.name == "posix":
            folder = tempfile.mkdtemp(prefix="taskweaver-model-")
            # Also at the end of the program, when the model was not closed.
            self._remove_socket_folder = weakref.finalize(self, shutil.rmtree, folder, True)
            parameters.hostnames = [os.path.join(folder, "model.sock")]
        return parameters

    def _forget_socket_folder(self) -> None:
        if self._remove_socket_folder is not None:
            self._remove_socket_folder()
            self._remove_socket_folder = None


class _LocalReply:
    """The `ReplySource` of one request."""

    def __init__(self, model: LocalModel, body: RequestBody) -> None:
        self._model = model
        self._body = body

    def run(self, deliver: Deliver) -> None:
        self._model.run(self._body, deliver)

    def cut(self) -> None:
        """Do nothing: `deliver` already answers that the reader wants no more."""


def _default_threads() -> int:
    """Leave one processor to others: threads that are disturbed keep all of them waiting.

    Two threads on two busy processors were five times slower than one.
    """
    if sys.platform == "linux":
        usable = len(os.sched_getaffinity(0))
    else:
        usable = os.cpu_count() or 1
    return min(MOST_THREADS, max(1, usable - 1))


def _complete(server: Any, body: RequestBody, deliver: Deliver, context_tokens: int) -> None:  # noqa: ANN401
    """Run the request; the library calls back per token, and per batch of the prompt."""
    reader = ChunkReader()
    problems: list[SimpleNamespace] = []

    def on_chunk(text: str) -> bool:
        """Take one chunk; True asks the library to stop."""
        chunk = json.loads(text, object_hook=lambda fields: SimpleNamespace(**fields))
        if hasattr(chunk, "error"):
            problems.append(chunk.error)
            return True
        progress = getattr(chunk, "prompt_progress", None)
        is_wanted = deliver(PromptRead(progress.processed, progress.total) if progress else None)
        for event in reader.read(chunk):
            is_wanted = deliver(event)
        return not is_wanted

    if not deliver(None):
        return
    try:
        server.handle_chat_completions(json.dumps(body), on_chunk)
    except (RuntimeError, ValueError) as error:
        raise RequestRefusedError(f"The local model cannot take the request ({error}).") from error
    for problem in problems:
        message = getattr(problem, "message", "no reason given")
        if getattr(problem, "type", "") == "exceed_context_size_error":
            raise ContextTooLongError(
                f"The conversation is too long for the local model's context of {context_tokens} "
                f"tokens ({message}). Shorten it, or raise llm.context_tokens."
            )
        raise RequestRefusedError(f"The local model refused the request ({message}).")


def _request_body(
    settings: ModelSettings,
    messages: Sequence[Message],
    schema: JsonSchema | None,
    max_tokens: int | None,
) -> RequestBody:
    room = settings.room_for_reply(max_tokens)
    body = {**chat_request(settings, messages, room), "return_progress": True}
    if schema is not None and settings.response_format != "text":
        body["response_format"] = json_schema_format(schema)
    return body
