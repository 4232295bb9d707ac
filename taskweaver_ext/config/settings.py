"""Settings of a project: frozen, one class for each part that is set, with TaskWeaver's names."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from taskweaver_ext.config.console import ConsoleConfig
from taskweaver_ext.config.sandbox import SandboxSettings
from taskweaver_ext.text.stream_pattern import StreamPattern

ReplyForm: TypeAlias = Literal["json", "channels"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
ApprovalMode: TypeAlias = Literal["ask", "auto", "deny"]
ApprovalScope: TypeAlias = Literal["shell", "all"]
AutoSend: TypeAlias = Literal["off", "next", "on"]
FolderPlace: TypeAlias = Literal["here", "session"]

_BLOCKED_FUNCTIONS = (
    "eval exec execfile compile raw_input reload __import__ getattr setattr delattr vars globals"
    " locals __getattribute__ __setattr__ __delattr__"
)


def _of_gateway(variable: str) -> dict[str, str]:
    """A field that belongs to the gateway which the same or a weaker source names."""
    return {"variable": f"TASKWEAVER_GATEWAY_{variable}", "belongs_to": "gateway_url"}


def _check_patterns(patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        try:
            StreamPattern(pattern)
        except ValueError as error:
            raise ValueError(f"a list of patterns. {str(error).removesuffix('.')}") from None


class EnvMode(enum.StrEnum):
    """Where kernels run; `ces/kernels/modes.py` says what that means."""

    Local = "local"
    Sandbox = "sandbox"
    Container = "container"
    Gateway = "gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionServiceConfig:
    """Where code runs."""

    kernel_mode: EnvMode = EnvMode.Local
    env_dir: Path = Path("env")
    engine_url: str = field(
        default="unix:///var/run/docker.sock", metadata={"variable": "DOCKER_HOST"}
    )
    """The Docker engine that runs containers."""
    custom_image: str | None = None
    """The image of containers; None: the one that `taskweaver-ext image build` makes."""
    container_runtime: str | None = None
    """What the engine runs containers with, such as `runsc`; None: its default."""
    container_user: str | None = None
    """UID:GID of code in containers; None: ours or, where we are root, the folder's owner."""
    gateway_url: str = field(
        default="", repr=False, metadata={"variable": "TASKWEAVER_GATEWAY_URL"}
    )
    """The gateway; may say `?token=...`. Empty: one that processes of this user share."""
    gateway_token: str = field(default="", repr=False, metadata=_of_gateway("TOKEN"))
    gateway_kernel: str = field(default="python3", metadata=_of_gateway("KERNEL"))
    """A kernelspec of the gateway."""
    gateway_ca_file: Path | None = field(default=None, metadata=_of_gateway("CA_FILE"))
    """Certificates to trust there instead of the system's."""
    python: str | None = None
    """What local kernels run on: a version such as 3.12, an interpreter or a virtual environment;
    None: the nearest one."""
    shell_init_script: str | None = None
    """Run in each fresh shell of a session: bash code, or the path of a file with it."""
    guard: bool = False
    """Whether local code is kept from looking into this program; `ask` does so by default."""
    preload: tuple[str, ...] = ()
    """Modules that local kernels have imported before they start."""
    spare_kernels: int = field(default=0, metadata={"at_least": 0})
    """How many local kernels are started before they are needed."""
    unresponsive_seconds: float = field(default=60.0, metadata={"at_least": 1})
    """How long a kernel that lives may take to begin with code before it is replaced."""
    env_allow: tuple[str, ...] = ()
    """Variables of ours that code sees besides those that programs need: names, or patterns such as
    `MYAPP_*`. Keys, tokens and passwords are never among them."""
    env_deny: tuple[str, ...] = ()
    """Variables that it does not see, also of `run` and `exec`; wins over everything else."""
    redact: bool = True
    """Whether sessions mask secrets in what code says: keys of the settings and of plugins, and
    what our variables keep from code."""
    redact_patterns: tuple[str, ...] = field(default=(), metadata={"check": _check_patterns})
    """What else is masked: regular expressions as `text.redaction.Redactor` takes them."""
    languages: Mapping[str, Mapping[str, Any]] | None = None
    """Languages besides those that are built in, or in their place, by name; what is said of each
    are the fields of `ces.programs.languages.Language`: command, arguments, suffix, build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """The roles of a conversation, and how long they may talk."""

    roles: tuple[str, ...] = ("planner", "code_interpreter")
    cwd: FolderPlace = "session"
    """Where code of new sessions works: `here`, in the folder that the program was started in, or
    in a folder of its own in the session's folder. `chat` and `ask` say `here` by default."""
    max_internal_chat_round_num: int = field(default=10, metadata={"at_least": 1})
    auto_send: AutoSend = "off"
    """Whether what a person runs goes to the agent: not at all, with the next message, or at once,
    so that it reacts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleConfig:
    """What every role that asks a model can be told."""

    llm_alias: str = ""
    """Which of `ext_llms.llm_configs` to use; empty: the model of `llm.*`."""
    prompt_file_path: Path | None = None
    prompt_compression: bool = False
    use_example: bool = True
    example_base_path: Path = Path("examples")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerConfig(RoleConfig):
    """The role that plans."""

    example_base_path: Path = Path("examples/planner_examples")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeGeneratorConfig(RoleConfig):
    """The part of the code interpreter that writes code."""

    load_plugin: bool = True
    example_base_path: Path = Path("examples/code_generator_examples")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeInterpreterConfig:
    """How code that a model wrote is checked and tried."""

    llm_alias: str = ""
    max_retry_count: int = field(default=3, metadata={"at_least": 0})
    code_verification_on: bool = True
    """By default as the kernel mode says."""
    allowed_modules: tuple[str, ...] | None = None
    """None: all; an empty list allows none."""
    blocked_functions: tuple[str, ...] = tuple(_BLOCKED_FUNCTIONS.split())
    code_prefix: str = ""
    reply_form: ReplyForm = "json"
    """How the model replies: in TaskWeaver's JSON, or in channels."""
    approval: ApprovalMode = "ask"
    """Whether code that a model writes asks first, runs, or is refused."""
    approval_scope: ApprovalScope = "shell"
    """What asks first: what cannot be verified and is not contained, or all code."""
    always_allowed: tuple[str, ...] = ()
    """Patterns of shell commands that run without asking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCompressorConfig:
    """When old rounds are summarised."""

    rounds_to_compress: int = field(default=2, metadata={"at_least": 1})
    rounds_to_retain: int = field(default=3, metadata={"at_least": 1})


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """Where plugins are."""

    base_path: Path = Path("plugins")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceConfig:
    """Where sessions keep their files."""

    workspace_path: Path = Path("workspace")
    """By default the project's place in the user's state folder; a folder `workspace` with
    sessions that a project has already stays in use, and nothing in it is removed by age unless
    `keep_days` is set."""
    keep_days: int = field(default=90, metadata={"at_least": 0})
    """After how many days without use a session's folder is removed; 0: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingConfig:
    """Where the log is written."""

    log_folder: Path = Path("logs")
    """By default beside the sessions, unless the project has such a folder already."""
    log_file: str = "task_weaver.log"
    level: LogLevel = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingConfig:
    """Whether OpenTelemetry is told what sessions do; the program's own SDK says where to."""

    enabled: bool = False
    """Needs the extra `otel`. As everywhere, OTEL_SDK_DISABLED turns the SDK off."""
    contents: bool = field(
        default=False,
        metadata={"variable": "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"},
    )
    """Whether prompts, replies, code and its output are part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """What `taskweaver-ext serve` allows its clients."""

    idle_minutes: float = field(default=60.0, metadata={"at_least": 0})
    """After how long without work a session is put away, its kernel with it; 0: never."""
    history_mb: int = field(default=64, metadata={"at_least": 1})
    """How much of the newest events is kept in memory, of all sessions together; older ones come
    from the disk."""
    max_sessions: int = field(default=100, metadata={"at_least": 1})
    """How many run at the same time."""
    max_connections: int = field(default=500, metadata={"at_least": 1})
    """How many streams of events, and how many requests, are open at the same time."""
    max_body_mb: int = field(default=4, metadata={"at_least": 1})
    """How large a request may be that is no upload."""
    max_upload_mb: int = field(default=1024, metadata={"at_least": 1})
    """How large an uploaded file may be."""
    requests_per_second: int = field(default=200, metadata={"at_least": 1})
    """Of one client address, after a burst of twice as many."""
    allowed_hosts: tuple[str, ...] = ()
    """Names by which clients may call this machine, besides its own and its addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmConfig:
    """What is set about models, as it was given; `llm.model_settings` makes sense of it."""

    settings: Mapping[str, object] = field(default_factory=dict, repr=False)
    """By whole name (`llm.model`), without those that have no value; may hold a key."""
    alternatives: Mapping[str, Mapping[str, object]] = field(default_factory=dict, repr=False)
    """`ext_llms.llm_configs`: such settings by alias."""

    @property
    def has_api_key(self) -> bool:
        """Whether a key is set, for whatever provider."""
        return any(name.endswith(".api_key") for name in self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings of a project."""

    app_base_dir: Path
    history_file: Path
    """Where what is typed in chats is kept."""
    names_kernel_mode: bool = True
    """Whether somebody has said where code runs; if not, people are told where it does."""
    named: tuple[Mapping[str, object], ...] = field(default=(), repr=False)
    """All that was set by name in code, as an argument or in the file, also what is not known here
    and what something stronger has replaced; may hold keys."""
    llm: LlmConfig = field(default_factory=LlmConfig)
    execution_service: ExecutionServiceConfig = field(default_factory=ExecutionServiceConfig)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    session: SessionConfig = field(default_factory=SessionConfig)
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    code_generator: CodeGeneratorConfig = field(default_factory=CodeGeneratorConfig)
    code_interpreter: CodeInterpreterConfig = field(default_factory=CodeInterpreterConfig)
    round_compressor: RoundCompressorConfig = field(default_factory=RoundCompressorConfig)
    plugin: PluginConfig = field(default_factory=PluginConfig)
    workspace: WorkspaceConfig = field(default_factory=WorkspaceConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    tracing: TracingConfig = field(default_factory=TracingConfig)
    console: ConsoleConfig = field(default_factory=ConsoleConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
