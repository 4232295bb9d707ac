"""Make the model that the settings ask for."""

from __future__ import annotations

from pathlib import Path

from taskweaver_ext.errors import ConfigError
from taskweaver_ext.llm.anthropic_model import AnthropicModel
from taskweaver_ext.llm.chat_model import ChatModel
from taskweaver_ext.llm.endpoint import check_address
from taskweaver_ext.llm.fetch import QWEN_CODER, default_models_folder
from taskweaver_ext.llm.local_model import LocalModel
from taskweaver_ext.llm.model_settings import ApiType, ModelSettings
from taskweaver_ext.llm.openai_model import OpenAIModel
from taskweaver_ext.llm.retrying import RetryingModel, RetryPolicy

WELL_KNOWN_ADDRESSES: dict[ApiType, str] = {
    "openai": "https://api.openai.com/v1",
    "ollama": "http://localhost:11434/v1",
    "qwen": "https://dashscope.aliyuncs.com/compatible-mode/v1",
    "zhipuai": "https://open.bigmodel.cn/api/paas/v4",
    "groq": "https://api.groq.com/openai/v1",
    "google_genai": "https://generativelanguage.googleapis.com/v1beta/openai",
    "anthropic": "https://api.anthropic.com",
}
"""Where each kind of provider listens when `llm.api_base` does not say; Azure has no such place."""


def create_chat_model(settings: ModelSettings, *, models_folder: Path | None = None) -> ChatModel:
    """Return the model of the settings; nothing is imported or contacted before its first stream.

    Args:
        models_folder: Where fetched models are; None for this user's own folder.

    Raises:
        ConfigError: The settings are incomplete.
    """
    if settings.api_type == "local":
        return LocalModel(_model_file(settings, models_folder or default_models_folder()), settings)
    api_base = _api_base(settings)
    model: ChatModel
    if settings.api_type == "anthropic":
        model = AnthropicModel(settings, api_base=api_base)
    else:
        model = OpenAIModel(settings, api_base=api_base)
    return RetryingModel(model, RetryPolicy(max_retries=settings.max_retries))


def _api_base(settings: ModelSettings) -> str:
    api_type = settings.api_type
    api_base = settings.api_base.strip().rstrip("/")
    if not api_base:
        if api_type not in WELL_KNOWN_ADDRESSES:
            raise ConfigError(
                f"llm.api_type is {api_type!r}, which has no well-known address. Set llm.api_base."
            )
        if not settings.api_key and api_type != "ollama":
            raise ConfigError(
                f"llm.api_type is {api_type!r}, but there is no key. Set llm.api_key, or the "
                "environment variable LLM_API_KEY."
            )
        return WELL_KNOWN_ADDRESSES[api_type]
    address = check_address(api_base)
    # People give Ollama's address without the path of its OpenAI-compatible side.
    return f"{api_base}/v1" if api_type == "ollama" and not address.path else api_base


def _model_file(settings: ModelSettings, models_folder: Path) -> Path:
    """Return the file that `llm.model` names, or the fetched one where it names none."""
    if settings.model in ("", ModelSettings().model):
        return models_folder / QWEN_CODER.file_name
    return Path(settings.model).expanduser()
