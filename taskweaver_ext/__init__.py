"""Run code for agents and show, live, what it does.

Everything public is here, and is imported when it is first asked for: a command
that needs one name does not pay for the others.
"""

TYPE_CHECKING = False  # as type checkers know it; importing it takes as long as all the rest

if TYPE_CHECKING:
    from taskweaver_ext.app import TaskWeaverApp as TaskWeaverApp
    from taskweaver_ext.approval import Approval as Approval
    from taskweaver_ext.ces.cells.python_call import Cell as Cell
    from taskweaver_ext.ces.cells.python_call import PythonCallResult as PythonCallResult
    from taskweaver_ext.ces.cells.tool_choice import ToolChoice as ToolChoice
    from taskweaver_ext.ces.cells.tool_choice import choose_tools as choose_tools
    from taskweaver_ext.ces.environment import Environment as Environment
    from taskweaver_ext.ces.events import ArtifactProduced as ArtifactProduced
    from taskweaver_ext.ces.events import DisplayProduced as DisplayProduced
    from taskweaver_ext.ces.events import DisplayUpdated as DisplayUpdated
    from taskweaver_ext.ces.events import ExecutionEvent as ExecutionEvent
    from taskweaver_ext.ces.events import ExecutionFinished as ExecutionFinished
    from taskweaver_ext.ces.events import InputRequested as InputRequested
    from taskweaver_ext.ces.events import InputSettled as InputSettled
    from taskweaver_ext.ces.events import LateOutput as LateOutput
    from taskweaver_ext.ces.events import LogRecorded as LogRecorded
    from taskweaver_ext.ces.events import OutputCleared as OutputCleared
    from taskweaver_ext.ces.events import OutputProduced as OutputProduced
    from taskweaver_ext.ces.events import StatusChanged as StatusChanged
    from taskweaver_ext.ces.events import StatusReported as StatusReported
    from taskweaver_ext.ces.kernels.containers.description import (
        ContainerSettings as ContainerSettings,
    )
    from taskweaver_ext.ces.kernels.containers.limits import ContainerLimits as ContainerLimits
    from taskweaver_ext.ces.kernels.gateways.api import GatewaySettings as GatewaySettings
    from taskweaver_ext.ces.kernels.host import EnvMode as EnvMode
    from taskweaver_ext.ces.process import ProcessExecutor as ProcessExecutor
    from taskweaver_ext.ces.programs.languages import Language as Language
    from taskweaver_ext.ces.programs.program import ProgramLimits as ProgramLimits
    from taskweaver_ext.ces.python_tool import PythonTool as PythonTool
    from taskweaver_ext.ces.registry import ExecutorRegistry as ExecutorRegistry
    from taskweaver_ext.ces.results import Display as Display
    from taskweaver_ext.ces.results import ExecutionArtifact as ExecutionArtifact
    from taskweaver_ext.ces.results import ExecutionResult as ExecutionResult
    from taskweaver_ext.ces.results import ExecutionStatus as ExecutionStatus
    from taskweaver_ext.ces.results import KernelContents as KernelContents
    from taskweaver_ext.ces.results import KernelDeath as KernelDeath
    from taskweaver_ext.ces.results import Notice as Notice
    from taskweaver_ext.ces.sessions.session_info import SessionInfo as SessionInfo
    from taskweaver_ext.ces.shell import ShellExecutor as ShellExecutor
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
    from taskweaver_ext.errors import SessionError as SessionError
    from taskweaver_ext.errors import TaskWeaverError as TaskWeaverError
    from taskweaver_ext.event_emitter import PostEventProxy as PostEventProxy
    from taskweaver_ext.event_emitter import SessionEventEmitter as SessionEventEmitter
    from taskweaver_ext.llm.chat_model import ChatModel as ChatModel
    from taskweaver_ext.llm.scripted import ScriptedModel as ScriptedModel
    from taskweaver_ext.output_batcher import OutputBatcher as OutputBatcher
    from taskweaver_ext.plugins import Plugin as Plugin
    from taskweaver_ext.plugins import PluginContext as PluginContext
    from taskweaver_ext.plugins import register_plugin as register_plugin
    from taskweaver_ext.plugins import test_plugin as test_plugin
    from taskweaver_ext.roles.role import Role as Role
    from taskweaver_ext.session import Session as Session
    from taskweaver_ext.session_events import EventScope as EventScope
    from taskweaver_ext.session_events import PostEventType as PostEventType
    from taskweaver_ext.session_events import RoundEventType as RoundEventType
    from taskweaver_ext.session_events import SessionEventHandler as SessionEventHandler
    from taskweaver_ext.session_events import SessionEventHandlerBase as SessionEventHandlerBase
    from taskweaver_ext.session_events import SessionEventType as SessionEventType
    from taskweaver_ext.session_events import TaskWeaverEvent as TaskWeaverEvent
    from taskweaver_ext.streaming.channels import ChannelEvent as ChannelEvent
    from taskweaver_ext.streaming.channels import ChannelParser as ChannelParser
    from taskweaver_ext.streaming.exec_widget import ExecWidget as ExecWidget
    from taskweaver_ext.streaming.subscriptions import ChannelSubscriptions as ChannelSubscriptions
    from taskweaver_ext.streaming.subscriptions import StopStream as StopStream
    from taskweaver_ext.text.json_stream import JsonStringStream as JsonStringStream

_MODULE_OF_NAME = {
    "TaskWeaverApp": "taskweaver_ext.app",
    "Approval": "taskweaver_ext.approval",
    "Cell": "taskweaver_ext.ces.cells.python_call",
    "PythonCallResult": "taskweaver_ext.ces.cells.python_call",
    "ToolChoice": "taskweaver_ext.ces.cells.tool_choice",
    "choose_tools": "taskweaver_ext.ces.cells.tool_choice",
    "Environment": "taskweaver_ext.ces.environment",
    "ArtifactProduced": "taskweaver_ext.ces.events",
    "DisplayProduced": "taskweaver_ext.ces.events",
    "DisplayUpdated": "taskweaver_ext.ces.events",
    "ExecutionEvent": "taskweaver_ext.ces.events",
    "ExecutionFinished": "taskweaver_ext.ces.events",
    "InputRequested": "taskweaver_ext.ces.events",
    "InputSettled": "taskweaver_ext.ces.events",
    "LateOutput": "taskweaver_ext.ces.events",
    "LogRecorded": "taskweaver_ext.ces.events",
    "OutputCleared": "taskweaver_ext.ces.events",
    "OutputProduced": "taskweaver_ext.ces.events",
    "StatusChanged": "taskweaver_ext.ces.events",
    "StatusReported": "taskweaver_ext.ces.events",
    "ContainerSettings": "taskweaver_ext.ces.kernels.containers.description",
    "ContainerLimits": "taskweaver_ext.ces.kernels.containers.limits",
    "GatewaySettings": "taskweaver_ext.ces.kernels.gateways.api",
    "EnvMode": "taskweaver_ext.ces.kernels.host",
    "ProcessExecutor": "taskweaver_ext.ces.process",
    "Language": "taskweaver_ext.ces.programs.languages",
    "ProgramLimits": "taskweaver_ext.ces.programs.program",
    "PythonTool": "taskweaver_ext.ces.python_tool",
    "ExecutorRegistry": "taskweaver_ext.ces.registry",
    "Display": "taskweaver_ext.ces.results",
    "ExecutionArtifact": "taskweaver_ext.ces.results",
    "ExecutionResult": "taskweaver_ext.ces.results",
    "ExecutionStatus": "taskweaver_ext.ces.results",
    "KernelContents": "taskweaver_ext.ces.results",
    "KernelDeath": "taskweaver_ext.ces.results",
    "Notice": "taskweaver_ext.ces.results",
    "SessionInfo": "taskweaver_ext.ces.sessions.session_info",
    "ShellExecutor": "taskweaver_ext.ces.shell",
    "Attachment": "taskweaver_ext.conversation",
    "AttachmentType": "taskweaver_ext.conversation",
    "Post": "taskweaver_ext.conversation",
    "Round": "taskweaver_ext.conversation",
    "ConfigError": "taskweaver_ext.errors",
    "KernelDiedError": "taskweaver_ext.errors",
    "KernelError": "taskweaver_ext.errors",
    "KernelNotReadyError": "taskweaver_ext.errors",
    "KernelStartError": "taskweaver_ext.errors",
    "ModelError": "taskweaver_ext.errors",
    "PluginError": "taskweaver_ext.errors",
    "ProtocolError": "taskweaver_ext.errors",
    "SessionError": "taskweaver_ext.errors",
    "TaskWeaverError": "taskweaver_ext.errors",
    "PostEventProxy": "taskweaver_ext.event_emitter",
    "SessionEventEmitter": "taskweaver_ext.event_emitter",
    "ChatModel": "taskweaver_ext.llm.chat_model",
    "ScriptedModel": "taskweaver_ext.llm.scripted",
    "OutputBatcher": "taskweaver_ext.output_batcher",
    "Plugin": "taskweaver_ext.plugins",
    "PluginContext": "taskweaver_ext.plugins",
    "register_plugin": "taskweaver_ext.plugins",
    "test_plugin": "taskweaver_ext.plugins",
    "Role": "taskweaver_ext.roles.role",
    "Session": "taskweaver_ext.session",
    "EventScope": "taskweaver_ext.session_events",
    "PostEventType": "taskweaver_ext.session_events",
    "RoundEventType": "taskweaver_ext.session_events",
    "SessionEventHandler": "taskweaver_ext.session_events",
    "SessionEventHandlerBase": "taskweaver_ext.session_events",
    "SessionEventType": "taskweaver_ext.session_events",
    "TaskWeaverEvent": "taskweaver_ext.session_events",
    "ChannelEvent": "taskweaver_ext.streaming.channels",
    "ChannelParser": "taskweaver_ext.streaming.channels",
    "ExecWidget": "taskweaver_ext.streaming.exec_widget",
    "ChannelSubscriptions": "taskweaver_ext.streaming.subscriptions",
    "StopStream": "taskweaver_ext.streaming.subscriptions",
    "JsonStringStream": "taskweaver_ext.text.json_stream",
}

__all__ = sorted(_MODULE_OF_NAME)


if not TYPE_CHECKING:  # a type checker that saw this would believe in every name

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used, and keep it."""
        module = _MODULE_OF_NAME.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List the public names, those not yet imported included."""
    return sorted({*globals(), *__all__})
