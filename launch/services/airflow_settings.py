"""Environment variables are read, and what is wrong with them is collected.

As in recordmill.launch.services.airflow_arguments, neither Airflow nor Beam is imported.
"""

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

import msgspec

from recordmill.schemas.errors import ConfigError


class Settings:
    """Reads environment variables, and collects what is wrong with them; an empty one is as none."""

    def __init__(self, environment: Mapping[str, str]):
        self._environment = environment
        self.faults: list[str] = []

    def checked(self, kind: type, **values: Any) -> Any:
        """`kind` of these values.

        Raises:
            ConfigError: with all that is missing or wrong in what was read.
        """
        if self.faults:
            raise ConfigError("; ".join(self.faults))
        return kind(**values)

    def text(self, name: str, default: str | None = None) -> Any:
        return self._environment.get(name, "").strip() or default

    def required(self, name: str) -> str:
        if not (text := self.text(name)):
            self.faults.append(f"{name} is missing")
        return text or ""

    def path(self, name: str, of_buckets: bool = False) -> str:
        path = self.required(name)
        if path and not path.startswith("gs://" if of_buckets else ("gs://", "/")):
            wanted = "must begin with gs://" if of_buckets else "must be absolute, or begin with gs://"
            self.faults.append(f"{name}={path} {wanted}")
        return path

    def switch(self, name: str, default: bool = False) -> bool:
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            self.faults.append(f"{name}={text} must be true or false")
        return text == "true"

    def number(self, name: str, default: float) -> float:
        text = self.text(name, str(default))
        if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text):
            self.faults.append(f"{name}={text} must be a number, 0 or more")
            return default
        return float(text)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of `choices`, the first where nothing is said."""
        text = self.text(name, choices[0])
        if text not in choices:
            self.faults.append(f"{name}={text} is none of {', '.join(choices)}")
        return text

    def day(self, name: str) -> date | None:
        text = self.text(name)
        try:
            return text and date.fromisoformat(text)
        except ValueError:
            self.faults.append(f"{name}={text} must be a day, as 2026-11-01")
            return None

    def positive(self, name: str) -> int:
        """An integer from 1 on; 0 where nothing is said."""
        text = self.text(name, "")
        if text and not re.fullmatch("[1-9][0-9]{0,5}", text):
            self.faults.append(f"{name}={text} must be an integer, 1 or more")
            return 0
        return int(text or 0)

    def mapping(self, name: str) -> dict[str, Any]:
        return self.decoded(name, dict[str, Any]) or {}

    def decoded(self, name: str, kind: Any) -> Any:
        """What a JSON object says; None where there is none, or where it is wrong."""
        try:
            return msgspec.json.decode(self.text(name, "null").encode(), type=kind | None)
        except msgspec.DecodeError as error:
            self.faults.append(f"{name} must be a JSON object ({error})")
            return None
