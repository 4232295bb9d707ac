"""Run code for agents and show, live, what it does.

Everything public is here, and is imported when it is first asked for: a command
that needs one name does not pay for the others.
"""

TYPE_CHECKING = False  # as type checkers know it; importing it takes as long as all the rest

if TYPE_CHECKING:
    from taskweaver_ext.app import TaskWeaverApp as TaskWeaverApp
    from taskweaver_ext.approval import Approval as Approval
    from taskweaver_ext.ces.environment import Environment as Environment
    from taskweaver_ext.ces.execution.events import ArtifactProduced as ArtifactProduced
    from taskweaver_ext.ces.execution.events import DisplayProduced as DisplayProduced
    from taskweaver_ext.ces.execution.events import DisplayUpdated as DisplayUpdated
    from taskweaver_ext.ces.execution.events import ExecutionEvent as ExecutionEvent
    from taskweaver_ext.ces.execution.events import ExecutionFinished as ExecutionFinished
    from taskweaver_ext.ces.execution.events import InputRequested as InputRequested
    from taskweaver_ext.ces.execution.events import InputSettled as InputSettled
    from taskweaver_ext.ces.execution.events import LateOutput as LateOutput
    from taskweaver_ext.ces.execution.events import LogRecorded as LogRecorded
    from taskweaver_ext.ces.execution.events import OutputCleared as OutputCleared
    from taskweaver_ext.ces.execution.events import OutputProduced as OutputProduced
    from taskweaver_ext.ces.execution.events import StatusChanged as StatusChanged
    from taskweaver_ext.ces.execution.events import StatusReported as StatusReported
    from taskweaver_ext.ces.execution.looks import Completion as Completion
    from taskweaver_ext.ces.execution.looks import Completions as Completions
    from taskweaver_ext.ces.execution.looks import Inspection as Inspection
    from taskweaver_ext.ces.execution.looks import KernelPeek as KernelPeek
    from taskweaver_ext.ces.execution.looks import RunningCode as RunningCode
    from taskweaver_ext.ces.execution.looks import StackLine as StackLine
    from taskweaver_ext.ces.execution.looks import Variable as Variable
    from taskweaver_ext.ces.execution.results import Display as Display
    from taskweaver_ext.ces.execution.results import ExecutionArtifact as ExecutionArtifact
    from taskweaver_ext.ces.execution.results import ExecutionResult as ExecutionResult
    from taskweaver_ext.ces.execution.results import ExecutionStatus as ExecutionStatus
    from taskweaver_ext.ces.execution.results import KernelContents as KernelContents
    from taskweaver_ext.ces.execution.results import KernelDeath as KernelDeath
    from taskweaver_ext.ces.execution.results import Notice as Notice
    from taskweaver_ext.ces.executors import ExecutorRegistry as ExecutorRegistry
    from taskweaver_ext.ces.kernels.container.description import (
        ContainerSettings as ContainerSettings,
    )
    from taskweaver_ext.ces.kernels.container.limits import ContainerLimits as ContainerLimits
    from taskweaver_ext.ces.kernels.gateway.api import GatewaySettings as GatewaySettings
    from taskweaver_ext.ces.process import ProcessExecutor as ProcessExecutor
    from taskweaver_ext.ces.programs.languages import Language as Language
    from taskweaver_ext.ces.programs.program import ProgramLimits as ProgramLimits
    from taskweaver_ext.ces.sessions.session_info import SessionInfo as SessionInfo
    from taskweaver_ext.ces.sessions.variables import RestoredVariables as RestoredVariables
    from taskweaver_ext.ces.sessions.variables import SavedVariables as SavedVariables
    from taskweaver_ext.ces.shell import ShellExecutor as ShellExecutor
    from taskweaver_ext.client.async_remote_session import AsyncRemoteSession as AsyncRemoteSession
    from taskweaver_ext.client.remote_session import RemoteSession as RemoteSession
    from taskweaver_ext.client.wire import RemoteRound as RemoteRound
    from taskweaver_ext.config.sandbox import SandboxSettings as SandboxSettings
    from taskweaver_ext.config.settings import EnvMode as EnvMode
    from taskweaver_ext.conversation import Attachment as Attachment
    from taskweaver_ext.conversation import AttachmentType as AttachmentType
    from taskweaver_ext.conversation import Post as Post
    from taskweaver_ext.conversation import Round as Round
    from taskweaver_ext.errors import ConfigError as ConfigError
    from taskweaver_ext.errors import KernelDiedError as KernelDiedError
    from taskweaver_ext.errors import KernelError as KernelError
    from taskweaver_ext.errors import KernelNotReadyError as KernelNotReadyError
    from taskweaver_ext.errors import KernelStartError as KernelStartError
    from taskweaver_ext.errors import ModelError as ModelError
    from taskweaver_ext.errors import PluginError as PluginError
    from taskweaver_ext.errors import ProtocolError as ProtocolError
    from taskweaver_ext.errors import RoundCancelledError as RoundCancelledError
    from taskweaver_ext.errors import SessionError as SessionError
    from taskweaver_ext.errors import TaskWeaverError as TaskWeaverError
    from taskweaver_ext.events.emitter import PostEventProxy as PostEventProxy
    from taskweaver_ext.events.emitter import SessionEventEmitter as SessionEventEmitter
    from taskweaver_ext.events.event_json import event_from_json as event_from_json
    from taskweaver_ext.events.event_json import event_to_json as event_to_json
    from taskweaver_ext.events.output_batcher import OutputBatcher as OutputBatcher
    from taskweaver_ext.events.types import EventScope as EventScope
    from taskweaver_ext.events.types import PostEventType as PostEventType
    from taskweaver_ext.events.types import RoundEventType as RoundEventType
    from taskweaver_ext.events.types import SessionEventHandler as SessionEventHandler
    from taskweaver_ext.events.types import SessionEventHandlerBase as SessionEventHandlerBase
    from taskweaver_ext.events.types import SessionEventType as SessionEventType
    from taskweaver_ext.events.types import TaskWeaverEvent as TaskWeaverEvent
    from taskweaver_ext.llm.chat_model import ChatModel as ChatModel
    from taskweaver_ext.llm.scripted import ScriptedModel as ScriptedModel
    from taskweaver_ext.plugins import Plugin as Plugin
    from taskweaver_ext.plugins import PluginContext as PluginContext
    from taskweaver_ext.plugins import register_plugin as register_plugin
    from taskweaver_ext.plugins import test_plugin as test_plugin
    from taskweaver_ext.roles.base.role import Memory as Memory
    from taskweaver_ext.roles.base.role import Role as Role
    from taskweaver_ext.session.session import Session as Session
    from taskweaver_ext.session.submitted import Submitted as Submitted
    from taskweaver_ext.streaming.channels import ChannelEvent as ChannelEvent
    from taskweaver_ext.streaming.channels import ChannelParser as ChannelParser
    from taskweaver_ext.streaming.exec_widget import ExecWidget as ExecWidget
    from taskweaver_ext.streaming.subscriptions import ChannelSubscriptions as ChannelSubscriptions
    from taskweaver_ext.streaming.subscriptions import StopStream as StopStream
    from taskweaver_ext.text.json_stream import JsonStringStream as JsonStringStream
    from taskweaver_ext.tools.python_call import Cell as Cell
    from taskweaver_ext.tools.python_call import PythonCallResult as PythonCallResult
    from taskweaver_ext.tools.python_tool import PythonTool as PythonTool
    from taskweaver_ext.tools.tool_choice import ToolChoice as ToolChoice
    from taskweaver_ext.tools.tool_choice import choose_tools as choose_tools

_NAMES_IN_MODULES = {
    "app": "TaskWeaverApp",
    "approval": "Approval",
    "ces.environment": "Environment",
    "ces.execution.events": (
        "ArtifactProduced DisplayProduced DisplayUpdated ExecutionEvent ExecutionFinished"
        " InputRequested InputSettled LateOutput LogRecorded OutputCleared OutputProduced"
        " StatusChanged StatusReported"
    ),
    "ces.execution.looks": (
        "Completion Completions Inspection KernelPeek RunningCode StackLine Variable"
    ),
    "ces.execution.results": (
        "Display ExecutionArtifact ExecutionResult ExecutionStatus KernelContents KernelDeath"
        " Notice"
    ),
    "ces.executors": "ExecutorRegistry",
    "ces.kernels.container.description": "ContainerSettings",
    "ces.kernels.container.limits": "ContainerLimits",
    "ces.kernels.gateway.api": "GatewaySettings",
    "ces.process": "ProcessExecutor",
    "ces.programs.languages": "Language",
    "ces.programs.program": "ProgramLimits",
    "ces.sessions.session_info": "SessionInfo",
    "ces.sessions.variables": "RestoredVariables SavedVariables",
    "ces.shell": "ShellExecutor",
    "client.async_remote_session": "AsyncRemoteSession",
    "client.remote_session": "RemoteSession",
    "client.wire": "RemoteRound",
    "config.sandbox": "SandboxSettings",
    "config.settings": "EnvMode",
    "conversation": "Attachment AttachmentType Post Round",
    "errors": (
        "ConfigError KernelDiedError KernelError KernelNotReadyError KernelStartError"
        " ModelError PluginError ProtocolError RoundCancelledError SessionError TaskWeaverError"
    ),
    "events.emitter": "PostEventProxy SessionEventEmitter",
    "events.event_json": "event_from_json event_to_json",
    "events.output_batcher": "OutputBatcher",
    "events.types": (
        "EventScope PostEventType RoundEventType SessionEventHandler SessionEventHandlerBase"
        " SessionEventType TaskWeaverEvent"
    ),
    "llm.chat_model": "ChatModel",
    "llm.scripted": "ScriptedModel",
    "plugins": "Plugin PluginContext register_plugin test_plugin",
    "roles.base.role": "Memory Role",
    "session.session": "Session",
    "session.submitted": "Submitted",
    "streaming.channels": "ChannelEvent ChannelParser",
    "streaming.exec_widget": "ExecWidget",
    "streaming.subscriptions": "ChannelSubscriptions StopStream",
    "text.json_stream": "JsonStringStream",
    "tools.python_call": "Cell PythonCallResult",
    "tools.python_tool": "PythonTool",
    "tools.tool_choice": "choose_tools ToolChoice",
}

_MODULE_OF_NAME = {
    name: module for module, names in _NAMES_IN_MODULES.items() for name in names.split()
}

__all__ = sorted(_MODULE_OF_NAME)


if not TYPE_CHECKING:  # a type checker that saw this would believe in every name

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used, and keep it."""
        module = _MODULE_OF_NAME.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List the public names, those not yet imported included."""
    return sorted({*globals(), *__all__})
