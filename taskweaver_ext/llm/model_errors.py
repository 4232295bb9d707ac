"""The few ways in which a model call fails; what vendors and networks raise ends here.

ModelError
├── ModelSetupError         a package or a model file is missing
├── WrongKeyError           the provider does not accept the key
├── UnknownModelError       the provider does not have the model
├── ModelUnreachableError   no connection to the provider
├── ModelOverloadedError    too many requests, or the provider is in trouble
├── ContextTooLongError     the messages do not fit into the model's context
├── RequestRefusedError     the provider refused the request for another reason
├── ReplyInterruptedError   the reply stopped before its end; carries what was received
│   ├── BrokenStreamError   the stream broke, was cut silently, or carried junk
│   ├── ModelTimeoutError   the model was silent for longer than the limit
│   └── ReplyCancelledError the caller asked for it
└── ModelFetchError         the model file could not be downloaded

Messages carry no key (`Secret.mask`), and these errors are raised without
a cause: vendors' exceptions hold requests, and requests hold keys.
"""

from __future__ import annotations

from taskweaver_ext.errors import ModelError


class ModelSetupError(ModelError):
    """A package or a model file that the model needs is missing or unusable."""


class WrongKeyError(ModelError):
    """The provider does not accept the key."""


class UnknownModelError(ModelError):
    """The provider does not have the model."""


class ModelUnreachableError(ModelError):
    """The provider could not be reached, or hung up before it said anything."""


class ModelOverloadedError(ModelError):
    """The provider is overloaded, in trouble, or has had too many requests from this key."""

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        """How long the provider asks to wait; None when it does not say."""


class ContextTooLongError(ModelError):
    """The messages and the room for the reply do not fit into the model's context."""


class RequestRefusedError(ModelError):
    """The provider refused the request, and asking again would not help."""


class ReplyInterruptedError(ModelError):
    """The reply stopped before its end."""

    received: str = ""
    """The text of the reply as far as it was read."""


class BrokenStreamError(ReplyInterruptedError):
    """The stream broke, ended without saying why, or carried something that is no event."""


class ModelTimeoutError(ReplyInterruptedError):
    """The model was silent for longer than the limit."""


class ReplyCancelledError(ReplyInterruptedError):
    """The stream was cancelled from this side."""


class ModelFetchError(ModelError):
    """The model file could not be downloaded, joined or verified."""
