"""What Config(...) does in Python: its arguments are read as the sections of a YAML file are."""

from collections.abc import Callable
from typing import Any

from mpies.core.errors import ConfigError
from mpies.core.options import Options


class ConfigType(type(Options)):  # type: ignore[misc]  # the metaclass of pydantic's models
    """The class of Config.  read: makes one of a mapping; mpies.config.loading, which needs the schema, sets it."""

    read: Callable[[dict[str, Any]], Any]

    def __call__(cls, *unnamed: Any, **values: Any) -> Any:
        """The Config of these sections and keys.  Raises ConfigError, in one line."""
        if unnamed:
            raise ConfigError(
                'mpies.Config takes sections by their names, such as environment={"id": "CartPole-v1"}; for a mapping, '
                "use mpies.Config(**mapping)"
            )
        return ConfigType.read(values)
