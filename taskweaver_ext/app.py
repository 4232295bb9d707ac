"""TaskWeaverApp: settings in, sessions out. The only module that knows injector."""

from __future__ import annotations

import datetime
import logging
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path

from injector import Injector, Module, provider, singleton

from taskweaver_ext.approval import Approval
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.kernels.modes import KERNEL_MODES
from taskweaver_ext.ces.programs.languages import language_from_settings
from taskweaver_ext.closing import Closeable
from taskweaver_ext.config.folders import current_folder
from taskweaver_ext.config.loading import load
from taskweaver_ext.config.settings import Config, ReplyForm, TracingConfig
from taskweaver_ext.errors import ConfigError, SessionError
from taskweaver_ext.events.dispatcher import MAX_KEPT_BYTES
from taskweaver_ext.llm.chat_model import ChatModel
from taskweaver_ext.llm.factory import create_chat_model
from taskweaver_ext.llm.model_settings import ApiType, ModelSettings
from taskweaver_ext.machine.child_environment import secret_variables
from taskweaver_ext.machine.credentials import secret_values
from taskweaver_ext.machine.owned_folders import remove_abandoned_folders
from taskweaver_ext.plugins.registry import PluginRegistry
from taskweaver_ext.roles.base.role import RoleRegistry
from taskweaver_ext.session.export.import_bundle import ImportedSession, import_bundle
from taskweaver_ext.session.folders import remove_old_folders
from taskweaver_ext.session.parts import SessionParts
from taskweaver_ext.session.session import Session
from taskweaver_ext.session.working_folder import FolderWish
from taskweaver_ext.text.redaction import Redactor
from taskweaver_ext.traces.traces import ModelIdentity, NoTraces, Traces

NO_MODEL = """\
No model is set. Put one of these into taskweaver_config.json and start again:

  OpenAI           "llm.api_type": "openai",
                   "llm.api_key": "...", "llm.model": "..."
  vLLM, LM Studio, "llm.api_type": "openai", "llm.model": "...",
  llama.cpp, ...   "llm.api_base": "http://..."
  Anthropic        "llm.api_type": "anthropic",
                   "llm.api_key": "...", "llm.model": "..."
  Ollama           "llm.api_type": "ollama", "llm.model": "..."
  on this machine  "llm.api_type": "local"
                   after: taskweaver-ext model fetch

Without a model, the chat runs Python (>) and shell (!), and /demo plays a
scripted demonstration."""

_NO_MODEL_IN_SHORT = (
    "none is set; put llm.api_key and llm.model into taskweaver_config.json, or set llm.api_type"
    " to local after: taskweaver-ext model fetch"
)

PROVIDERS_IN_TRACES: Mapping[ApiType, str] = {
    "azure": "azure.ai.openai",
    "azure_ad": "azure.ai.openai",
    "google_genai": "gcp.gemini",
}
"""What the conventions for traces call providers, where that is another name than ours."""

_CODE_PREFIX = "code_interpreter.code_prefix"
"""Code, which is shown as it is: what is assigned in it to a name such as `key` is no secret."""

_logger = logging.getLogger(__name__)


class ModelPool:
    """The models of an application by alias, each made when it is first asked for."""

    def __init__(self, config: Config, override: ChatModel | None = None) -> None:
        """Make models of settings.

        Args:
            override: Used for every alias instead of what the settings say.
        """
        self._config = config
        self._override = override
        self._lock = threading.Lock()
        self._models: dict[str, ChatModel] = {}

    def find(self, alias: str) -> ChatModel:
        """Return the model of an alias; of `llm.*` when it is empty.

        Raises:
            ConfigError: The settings do not say which model, or make no sense.
        """
        if self._override is not None:
            return self._override
        with self._lock:
            if alias not in self._models:
                self._models[alias] = create_chat_model(self._settings(alias))
            return self._models[alias]

    def identify(self, alias: str) -> ModelIdentity:
        """Return which model an alias means, for those that trace."""
        if self._override is not None:
            return ModelIdentity("custom", self._override.name)
        settings = self._settings(alias)
        provider = PROVIDERS_IN_TRACES.get(settings.api_type, settings.api_type)
        return ModelIdentity(provider, settings.model)

    def describe(self) -> str:
        """Return in one line which model answers, or what is to be done about it."""
        try:
            settings = ModelSettings.from_mapping(self._config.llm.settings)
            if self._override is None and _is_unset(settings):
                return _NO_MODEL_IN_SHORT
            return self.find("").name
        except ConfigError as error:
            return f"cannot be used: {error}"

    def name(self) -> str | None:
        """Return which model answers, in a few words; None: none is set. None is made for it."""
        try:
            identity = self.identify("")
        except ConfigError as error:
            return None if str(error) == NO_MODEL else f"cannot be used: {error}"
        return f"{identity.model or 'as the server chooses'} ({identity.provider})"

    def close(self) -> None:
        """Let go of the models that were made here."""
        with self._lock:
            models, self._models = list(self._models.values()), {}
        for model in models:
            model.close()

    def _settings(self, alias: str) -> ModelSettings:
        llm = self._config.llm
        if not alias:
            settings = ModelSettings.from_mapping(llm.settings)
            if _is_unset(settings):
                raise ConfigError(NO_MODEL)
            return settings
        if alias not in llm.alternatives:
            known = ", ".join(sorted(llm.alternatives)) or "none"
            raise ConfigError(f"ext_llms.llm_configs has no model {alias!r}; there are: {known}.")
        return ModelSettings.from_mapping(_with_alternative(llm.settings, llm.alternatives[alias]))


class _Parts(Module):
    """How the parts of an application are made of its settings."""

    def __init__(
        self,
        config: Config,
        model: ChatModel | None,
        reply_form: ReplyForm,
        kept_event_bytes: int,
    ) -> None:
        self._config = config
        self._model = model
        self._reply_form = reply_form
        self._kept_event_bytes = kept_event_bytes
        self.environment: Environment | None = None
        """Made with the first session; commands that need none do not pay for it."""

    @singleton
    @provider
    def provide_redactor(self, plugins: PluginRegistry) -> Redactor:
        return _make_redactor(self._config, plugins)

    @singleton
    @provider
    def provide_environment(self, redactor: Redactor) -> Environment:
        service = self._config.execution_service
        self.environment = Environment(
            service.env_dir,
            service.kernel_mode,
            python=service.python,
            preload=service.preload,
            spare_kernels=service.spare_kernels,
            unresponsive_seconds=service.unresponsive_seconds,
            sandbox=self._config.sandbox,
            guard=service.guard,
            service=service,
            redactor=redactor,
        )
        return self.environment

    @singleton
    @provider
    def provide_plugins(self) -> PluginRegistry:
        return PluginRegistry.load(self._config.plugin.base_path)

    @singleton
    @provider
    def provide_models(self) -> ModelPool:
        return ModelPool(self._config, self._model)

    @singleton
    @provider
    def provide_session_parts(
        self, environment: Environment, plugins: PluginRegistry, models: ModelPool
    ) -> SessionParts:
        config = self._config
        ours = Path(__file__).parent / "roles"
        return SessionParts(
            config=config,
            environment=environment,
            plugins=plugins,
            roles=RoleRegistry.load(ours, config.app_base_dir / "roles"),
            find_model=models.find,
            languages={
                name: language_from_settings(name, settings)
                for name, settings in (config.execution_service.languages or {}).items()
            },
            reply_form=self._reply_form,
            traces=_make_traces(config.tracing, models),
            kept_event_bytes=self._kept_event_bytes,
        )


class TaskWeaverApp(Closeable):
    """A project folder at work: it makes sessions, and ends them.

    Use it as a context manager, or call `close`. Sessions are independent of each
    other and may be used from different threads.
    """

    def __init__(
        self,
        app_dir: str | Path | None = None,
        config: Mapping[str, object] | None = None,
        *,
        arguments: Mapping[str, object] | None = None,
        model: ChatModel | None = None,
        reply_form: ReplyForm | None = None,
        defaults: Mapping[str, object] | None = None,
        kept_event_bytes: int = MAX_KEPT_BYTES,
    ) -> None:
        """Read the settings of a project.

        Args:
            app_dir: The project's folder; by default the nearest one upwards.
            config: Settings that win over all others, by name.
            arguments: Settings from a command line.
            model: Used instead of the one that is set, for demonstrations and tests.
            reply_form: How the model replies; None: as `code_interpreter.reply_form` says.
            defaults: Settings that all others win over.
            kept_event_bytes: How much of its newest events each session keeps in memory.

        Raises:
            ConfigError: Some settings cannot be used.
        """
        self.config = load(
            app_dir,
            overrides=config,
            arguments=arguments,
            mode_defaults={
                name: {"code_interpreter.code_verification_on": mode.verifies_code}
                for name, mode in KERNEL_MODES.items()
            },
            defaults=defaults,
        )
        workspace = self.config.workspace
        remove_old_folders(workspace.workspace_path, workspace.keep_days)
        remove_abandoned_folders([workspace.workspace_path])
        form = reply_form or self.config.code_interpreter.reply_form
        self._parts = _Parts(self.config, model, form, kept_event_bytes)
        self._injector = Injector(self._parts, auto_bind=False)
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._unended: set[Session] = set()
        """Those that may still use what all of them share."""
        self._is_closed = False
        self._are_parts_closed = False

    @property
    def plugins(self) -> PluginRegistry:
        """The plugins of the project, with what is wrong with the others."""
        return self._injector.get(PluginRegistry)

    def describe_model(self) -> str:
        """Return in one line which model answers, or what is to be done about it."""
        return self._injector.get(ModelPool).describe()

    def name_model(self) -> str | None:
        """Return which model answers, in a few words; None: none is set."""
        return self._injector.get(ModelPool).name()

    @property
    def redactor(self) -> Redactor:
        """Masks the project's secrets."""
        return self._injector.get(Redactor)

    @property
    def environment(self) -> Environment:
        """Where the kernels of the sessions are."""
        return self._injector.get(Environment)

    def get_session(
        self,
        session_id: str | None = None,
        *,
        approval: Approval | None = None,
        cwd: str | Path | None = None,
    ) -> Session:
        """Return a session: the one with that id if it is open or on the disk, else a new one.

        One on the disk goes on where an earlier process left it, on a fresh kernel: rounds, what
        the roles know, context and numbering are as they were, variables are lost, which it says.

        Args:
            approval: What a new session may run without asking.
            cwd: The folder in which its code works; by default where it worked before, and of a
                new session as `session.cwd` says. Nothing but code and the files that are given to
                the session changes anything there.

        Raises:
            SessionError: The application has been closed, or another process has the session open,
                or what is on the disk cannot be continued.
            ConfigError: The settings name an unknown role, or a language that makes no sense, or
                the folder cannot be used.
        """
        with self._lock:
            if self._is_closed:
                raise SessionError("This application has been closed.")
            if session_id is not None and session_id in self._sessions:
                return _working_in(self._sessions[session_id], cwd)
            parts = self._injector.get(SessionParts)
            if approval is None:
                interpreter = self.config.code_interpreter
                approval = Approval(
                    interpreter.approval,
                    scope=interpreter.approval_scope,
                    always_allowed=interpreter.always_allowed,
                )
            session_id = session_id or _new_session_id()
            wish = self._folder_wish(session_id, cwd)
            session = Session(session_id, parts, approval=approval, wish=wish, on_end=self._forget)
            self._sessions[session.session_id] = session
            self._unended.add(session)
            return session

    def _folder_wish(self, session_id: str, cwd: str | Path | None) -> FolderWish:
        """Say where a session is to work; what confined code would reach of ours is refused."""
        session_dir = self.config.workspace.workspace_path / "sessions" / session_id
        mode = KERNEL_MODES[self.config.execution_service.kernel_mode]
        here = None
        if self.config.session.cwd == "here" and mode.starts_here:
            here = current_folder()
        return FolderWish(
            cwd=None if cwd is None else Path(cwd).expanduser(),
            here=here,
            check=lambda folder: self.environment.check_folder(folder, session_dir),
        )

    def import_session(self, path: str | Path) -> ImportedSession:
        """Take a session back that was exported as a bundle; `get_session` continues it.

        Raises:
            SessionError: It is no bundle, or cannot be taken; nothing is left of it.
        """
        return import_bundle(Path(path), self.config.workspace.workspace_path)

    def stop_session(self, session_id: str) -> None:
        """End one session; its folder stays."""
        with self._lock:
            session = self._sessions.pop(session_id, None)
        if session is not None:
            session.stop()

    def close(self) -> None:
        """End all sessions and everything they started.

        Inside the call of a session's handler this returns at once; what is left ends
        with the session's round.
        """
        with self._lock:
            self._is_closed = True
            sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            try:
                session.stop()
            except Exception:  # the others are still to be ended
                _logger.exception("Session %r could not be ended", session.session_id)
        self._close_parts()

    def _forget(self, session: Session) -> None:
        """A session has ended; the last one of a closed application takes everything along."""
        with self._lock:
            self._unended.discard(session)
            if self._sessions.get(session.session_id) is session:
                del self._sessions[session.session_id]
        self._close_parts()

    def _close_parts(self) -> None:
        """Close what sessions share, once the application is closed and they have ended."""
        with self._lock:
            if not self._is_closed or self._unended or self._are_parts_closed:
                return
            self._are_parts_closed = True
        if self._parts.environment is not None:
            self._parts.environment.close()
        self._injector.get(ModelPool).close()


def _make_redactor(config: Config, plugins: PluginRegistry) -> Redactor:
    """Mask what settings, plugins and variables keep secret, and what the project adds."""
    service = config.execution_service
    if not service.redact:
        return Redactor(())
    named = [
        {name: value for name, value in source.items() if name != _CODE_PREFIX}
        for source in config.named
    ]
    settings: dict[str, object] = {
        "named": named,
        "llm": config.llm.settings,
        "llm_configs": config.llm.alternatives,
        "gateway_url": service.gateway_url,
        "gateway_token": service.gateway_token,
        "engine_url": service.engine_url,
        "languages": service.languages or {},
        "plugins": plugins.configurations,
    }
    return Redactor(secret_values(settings) | secret_variables(), service.redact_patterns)


def _make_traces(settings: TracingConfig, models: ModelPool) -> Traces:
    if not settings.enabled:
        return NoTraces()
    try:  # an extra, which only those that trace pay for
        from taskweaver_ext.traces.open_telemetry import OpenTelemetryTraces
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError(
            "tracing.enabled needs the package opentelemetry-api, which is not installed: add the"
            " extra otel (pip install 'taskweaver_ext[otel]'), or turn the setting off."
        ) from None
    return OpenTelemetryTraces(models.identify, has_contents=settings.contents)


def _working_in(session: Session, cwd: str | Path | None) -> Session:
    """Return an open session, if it works where it is wanted to."""
    if cwd is not None and Path(cwd).expanduser().absolute() != session.cwd:
        raise SessionError(
            f"Session {session.session_id!r} is open and works in {session.cwd}. Stop it before it"
            " is continued in another folder."
        )
    return session


def _is_unset(settings: ModelSettings) -> bool:
    """Whether no setting says where a model is to be found."""
    has_place = settings.api_key or settings.api_base or settings.api_type in ("local", "ollama")
    return not has_place


def _with_alternative(
    settings: Mapping[str, object], alternative: Mapping[str, object]
) -> dict[str, object]:
    """Return the settings of another model; with another provider, no key goes along."""
    inherited = dict(settings)
    if alternative.keys() & {"llm.api_type", "llm.api_base"}:
        ours = ("api_key", "api_base", "model")
        inherited = {
            name: value for name, value in settings.items() if name.rpartition(".")[2] not in ours
        }
    return {**inherited, **alternative}


def _new_session_id() -> str:
    return f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
