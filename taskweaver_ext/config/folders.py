"""Where settings are: the folder of a project, and the one of all projects of a user."""

from __future__ import annotations

from pathlib import Path

from taskweaver_ext.errors import ConfigError

FILE_NAME = "taskweaver_config.json"


def home_folder() -> Path:
    """Where a user keeps what belongs to all projects: extension modules, an environment."""
    return Path.home() / ".taskweaver"


def current_folder() -> Path:
    """The folder that this program was started in; raises ConfigError if it is gone."""
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigError(
            f"The current folder cannot be used ({error.strerror}). Change to another one."
        ) from error


def find_app_dir(start: Path | None = None) -> Path:
    """The nearest folder from `start` upwards that has a configuration file, else `start`."""
    start = (start or current_folder()).absolute()
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder
    return start
