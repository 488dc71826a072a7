"""Text to tokens and back for any checkpoint folder with a tokenizer.json, without transformers or torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from nemotron_rl.checkpoint.layout import CONFIG_FILE, read_json_object
from nemotron_rl.checkpoint.tokenizer_files import CHAT_TEMPLATE_FILE
from nemotron_rl.errors import CheckpointError

Message = Mapping[str, Any]
"""`role` and `content`, as in the OpenAI chat format."""


class ChatTokenizer:
    """The tokenizer, the chat template and the special tokens of one checkpoint folder."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, settings: Mapping[str, Any]) -> None:
        """Use `from_folder`."""
        self._folder, self._tokenizer, self._settings = folder, tokenizer, settings

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTokenizer:
        """Read tokenizer.json and tokenizer_config.json.

        Raises:
            CheckpointError: One is missing or broken.
        """
        settings = read_json_object(folder / "tokenizer_config.json")
        path = folder / "tokenizer.json"
        read_json_object(path)  # the tokenizers library's own messages name neither the file nor the place
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # it raises nothing more precise than Exception
            raise CheckpointError(f"{path}: is not a tokenizer: {error!s:.200}") from error
        return cls(folder, tokenizer, settings)

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included; the model's embedding may have more rows."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; special tokens spelled out in it are recognized, none is added."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens left out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The conversation as text, by the checkpoint's chat template.

        Raises:
            CheckpointError: There is no template, or it refuses these messages.
        """
        names = {key: self._token(key) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                **{key: token for key, token in names.items() if token is not None},
            )
        except TemplateError as error:
            raise CheckpointError(f"the chat template of {self._folder} refuses these messages: {error}") from error

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the conversation, ready for the assistant's answer."""
        return self.encode(self.render(messages, add_generation_prompt=True))

    @cached_property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end a response: of generation_config.json, else of config.json, else the tokenizer's own."""
        for file in ("generation_config.json", CONFIG_FILE):
            value = self._optional_json(file).get("eos_token_id")
            ids = value if isinstance(value, list) else [] if value is None else [value]
            if ids and all(type(token) is int for token in ids):
                return tuple(ids)
        own = self._id_of("eos_token")
        if own is None:
            raise CheckpointError(
                f"{self._folder} names no end-of-sequence token; set eos_token_id in generation_config.json"
            )
        return (own,)

    @cached_property
    def turn_end_id(self) -> int:
        """The one id of `eos_token_ids` that ends an assistant's turn: the tokenizer's own, else the first."""
        own = self._id_of("eos_token")
        return own if own is not None and own in self.eos_token_ids else self.eos_token_ids[0]

    @cached_property
    def pad_token_id(self) -> int:
        """Id that fills batches: the tokenizer's, else that of config.json, else the first end-of-sequence id."""
        own = self._id_of("pad_token")
        if own is not None:
            return own
        value = self._optional_json(CONFIG_FILE).get("pad_token_id")
        return value if type(value) is int else self.eos_token_ids[0]

    @cached_property
    def _template(self) -> Template:
        path = self._folder / CHAT_TEMPLATE_FILE
        text = path.read_text(encoding="utf-8") if path.is_file() else self._settings.get("chat_template")
        if isinstance(text, list):  # several templates by name
            text = next((item.get("template") for item in text if item.get("name") == "default"), None)
        if not isinstance(text, str):
            raise CheckpointError(
                f"{self._folder} has no chat template: expected {CHAT_TEMPLATE_FILE} or `chat_template`"
            )
        return _compile(text, str(path))

    def _token(self, key: str) -> str | None:
        """The text of a special token, which files spell as a string or as an object."""
        value = self._settings.get(key)
        content = value.get("content") if isinstance(value, dict) else value
        return content if isinstance(content, str) else None

    def _id_of(self, key: str) -> int | None:
        token = self._token(key)
        return None if token is None else self._tokenizer.token_to_id(token)

    def _optional_json(self, file: str) -> Mapping[str, Any]:
        return read_json_object(self._folder / file) if (self._folder / file).exists() else {}


def _compile(text: str, where: str) -> Template:
    """Compile a chat template in a sandbox, with the helpers that Hugging Face's templates rely on."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    try:
        return environment.from_string(text)
    except TemplateError as error:
        raise CheckpointError(f"{where}: the chat template is broken: {error}") from error


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, unlike jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(layout: str) -> str:
    return datetime.now().astimezone().strftime(layout)
