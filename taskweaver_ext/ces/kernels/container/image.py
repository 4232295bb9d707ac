"""Build the image that kernels run in, from a registry or without one."""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from taskweaver_ext.ces.kernels.container.base_image import content_hash, write_base_tar
from taskweaver_ext.ces.kernels.container.engine import (
    LABEL,
    Engine,
    EngineError,
    NotInEngineError,
)
from taskweaver_ext.errors import ConfigError

DEFAULT_IMAGE = "taskweaver-ext-kernel:latest"
DEFAULT_BASE_IMAGE = "python:3.12-slim"
DOCKERFILE = Path(__file__).with_name("Dockerfile")

_CONTENT_LABEL = f"{LABEL}.content"
_OFFLINE_BASE = "taskweaver-ext-offline-base"
_ALWAYS = ("ipykernel", "pip")


def build_image(
    engine: Engine,
    image: str = DEFAULT_IMAGE,
    *,
    base_image: str = DEFAULT_BASE_IMAGE,
    packages: Sequence[str] = (),
    is_offline: bool = False,
    say: Callable[[str], None] = lambda _text: None,
) -> None:
    """Build the image of kernels.

    Args:
        image: The name it gets.
        base_image: What it is built on; taken from its registry if the engine does not have it.
        packages: Distributions to install besides ipykernel.
        is_offline: Build on the running Python instead of `base_image`; done in any case when
            no registry answers.
        say: Told what happens, line by line.

    Raises:
        ConfigError: It cannot be built; the message says what to do.
    """
    try:
        if is_offline or not _has_base(engine, base_image, say):
            _build_offline(engine, image, packages, say)
        else:
            _build(engine, image, base_image, packages, "", say)
    except EngineError as error:
        raise ConfigError(f"The image {image!r} could not be built: {error}") from error


def _has_base(engine: Engine, base_image: str, say: Callable[[str], None]) -> bool:
    """Get the base image if need be; False when no registry answers."""
    if engine.image_labels(base_image) is not None:
        return True
    say(f"getting {base_image}")
    try:
        engine.pull(base_image)
    except NotInEngineError as error:
        raise ConfigError(
            f"There is no image {base_image!r} in its registry. Choose another base image."
        ) from error
    except EngineError as error:
        say(f"no registry answers ({error}); building on the running Python instead")
        return False
    return True


def _build_offline(
    engine: Engine, image: str, packages: Sequence[str], say: Callable[[str], None]
) -> None:
    """Build on a base that is made of the running Python; does nothing if that was done."""
    wanted = (*_ALWAYS, *packages)
    content = content_hash(wanted) + hashlib.sha256(DOCKERFILE.read_bytes()).hexdigest()[:8]
    if (engine.image_labels(image) or {}).get(_CONTENT_LABEL) == content:
        say(f"{image} is up to date")
        return
    base_image = f"{_OFFLINE_BASE}:{content}"
    if engine.image_labels(base_image) is None:
        say("packing the running Python")
        with tempfile.TemporaryFile() as tar:
            write_base_tar(tar, wanted)
            tar.seek(0)
            engine.import_image(tar, base_image, ["ENV PATH=/usr/local/bin:/usr/bin:/bin"])
    try:
        _build(engine, image, base_image, packages, content, say)
    finally:
        engine.remove_image(base_image)  # its layers stay as long as the image needs them


def _build(
    engine: Engine,
    image: str,
    base_image: str,
    packages: Sequence[str],
    content: str,
    say: Callable[[str], None],
) -> None:
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        tar.add(DOCKERFILE, "Dockerfile")
    context.seek(0)
    engine.build(
        context,
        image,
        arguments={"BASE_IMAGE": base_image, "PACKAGES": " ".join(packages)},
        labels={_CONTENT_LABEL: content},
        has_network=not content,
        say=say,
    )
    say(f"built {image}")
