"""Sessions of a project for the console."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.chat.chat_session import ChatSession, SessionSource
from taskweaver_ext.chat.kernel_names import KernelName, find_names
from taskweaver_ext.cli.init import find_template
from taskweaver_ext.demo import DEMO_REQUEST, make_demo_app
from taskweaver_ext.errors import TaskWeaverError
from taskweaver_ext.session.session import Session

_COMPLETION_SECONDS = 2.0


def sessions_of(app: TaskWeaverApp) -> SessionSource:
    """Let the console make sessions of an application."""

    def names(session: ChatSession, code: str) -> Sequence[KernelName]:
        try:
            return find_names(
                lambda source: app.environment.execute_code(
                    session.session_id, source, timeout=_COMPLETION_SECONDS
                ),
                code,
            )
        except TaskWeaverError:  # its kernel has not been started
            return []

    return SessionSource(
        create=app.get_session,
        create_demo=lambda: _create_demo(app),
        find_names=names,
        describe=lambda session: _describe(app, session),
        describe_cost=_describe_cost,
        demo_request=DEMO_REQUEST,
    )


def _create_demo(app: TaskWeaverApp) -> tuple[ChatSession, Callable[[], None]]:
    plugins = find_template() / "plugins"
    demo = make_demo_app(plugins, app.config.app_base_dir)
    return demo.get_session(), demo.close


def _describe(app: TaskWeaverApp, session: ChatSession) -> list[tuple[str, str]]:
    config = app.config
    details = [
        ("project", str(config.app_base_dir)),
        ("folder", str(session.session_dir)),
        ("model", app.describe_model()),
        ("kernel", config.execution_service.kernel_mode),
    ]
    if isinstance(session, Session):
        plugins = ", ".join(plugin.name for plugin in session.plugins)
        details += [("plugins", plugins or "none"), ("used", session.usage.describe())]
    return details


def _describe_cost(session: ChatSession) -> str:
    if not isinstance(session, Session) or not session.usage.round.total_tokens:
        return ""
    return session.usage.describe_round()
