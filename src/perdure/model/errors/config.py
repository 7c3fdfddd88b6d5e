"""Errors of settings and of the installation."""

from __future__ import annotations

from perdure.model.errors.base import PerdureError


class ConfigError(PerdureError):
    """A setting is missing, unknown or invalid."""

    code = "malformed-setting"


class MalformedUrl(ConfigError):
    """A database URL is not one of memory:, sqlite:///path, postgresql://..."""

    code = "malformed-url"


class ExtraMissing(ConfigError):
    """This needs a package that is not installed; the message names the extra that installs it."""

    code = "extra-missing"


class PortTaken(ConfigError):
    """The address for metrics cannot be used: another process has the port, or it is reserved."""

    code = "port-taken"
