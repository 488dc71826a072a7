"""Text into values: YAML files, and the single values of `--set` and of the environment."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from nemotron_rl.config.fields import accepts, leaves
from nemotron_rl.errors import SettingsError
from nemotron_rl.paths import check_path


class _Loader(yaml.SafeLoader):
    """YAML without its traps: `1e-6` is a number, `on` and `2026-01-01` are text, and a repeated key is an error."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (yaml's own class attribute)
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":bool", ":float"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                problem = f"the key {key.value!r} is repeated"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$", re.I), list("tTfF"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?$|^[-+]?\.(inf|nan)$", re.I),
    list("-+.0123456789"),
)


def parse_yaml(text: str) -> object:
    """The value of a YAML document. Raises yaml.YAMLError."""
    return yaml.load(text, Loader=_Loader)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises SettingsError with the file and line for anything else."""
    check_path(path)
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(f"cannot read the settings file {path}: {reason}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise SettingsError(f"{path}{line} is not valid YAML: {getattr(error, 'problem', error)}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"{path} should be a YAML mapping of sections such as `train:`, not {content!r:.60}")
    return content


def parse_value(path: str, text: str) -> object:
    """The value that `text` stands for in the setting `path`.

    YAML, with what the setting's type makes unambiguous: text stays text (`run_id=2026`), and a list may be written
    without brackets (`slice.layers=0,1,7,8`).
    """
    try:
        value = parse_yaml(text)
    except yaml.YAMLError:
        return text
    if path not in leaves() or value is None:
        return value
    if accepts(path, tuple) and not isinstance(value, list):
        return [parse_yaml(part) for part in text.split(",")]
    is_text = isinstance(value, str) or accepts(path, str) or accepts(path, Path)
    return text.strip() if is_text else value
