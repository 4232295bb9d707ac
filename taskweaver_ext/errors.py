"""Every exception this package raises on purpose.

TaskWeaverError
├── ConfigError             a setting is missing or makes no sense
├── SessionError            unknown, started twice, or stopped
│   └── RoundCancelledError a round was stopped; the session can go on
├── KernelError             the kernel failed, not the code it ran
│   ├── KernelStartError    it never became ready
│   │   └── KernelNotReadyError  it was started, and gone or silent before it could be used
│   └── KernelDiedError     it died again and again; starting it once more is refused
├── PluginError             a plugin could not be loaded
├── ModelError              the model call or its stream failed
└── ProtocolError           the other side said something that cannot be understood

Code that raises, times out or takes its kernel down is a result, not an
exception (`ces/execution/results.py`). Messages say what happened, what it cost, and
what to do.
"""


class TaskWeaverError(Exception):
    """Base of all errors below; its message is fit to be shown to a person."""


class ConfigError(TaskWeaverError):
    """A setting is missing or makes no sense."""


class SessionError(TaskWeaverError):
    """The session is unknown, was started twice, or has been stopped."""


class RoundCancelledError(SessionError):
    """The round was stopped; the session can go on."""


class KernelError(TaskWeaverError):
    """The kernel failed, not the code it ran."""


class KernelStartError(KernelError):
    """The kernel never became ready."""


class KernelNotReadyError(KernelStartError):
    """The kernel was gone or silent before it could be used; a second try may succeed."""


class KernelDiedError(KernelError):
    """The kernel died again and again; starting it once more is refused."""


class PluginError(TaskWeaverError):
    """A plugin could not be loaded, or its own test failed."""


class ModelError(TaskWeaverError):
    """The model call or its stream failed."""


class ProtocolError(TaskWeaverError):
    """The other side said something that cannot be understood."""
