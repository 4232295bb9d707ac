"""Plugins: what a project's Python functions can do for generated code."""

from taskweaver_ext.ces.inside.kernel.plugin_api import (
    Plugin,
    PluginContext,
    register_plugin,
    test_plugin,
)

__all__ = ["Plugin", "PluginContext", "register_plugin", "test_plugin"]
