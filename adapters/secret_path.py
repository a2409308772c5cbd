"""A credential that stands in the path of every request: `/bot<token>/`, `/hook/<key>/`.

It is put onto the wire below httpx2, so that no URL, log line or exception of the libraries holds it; and what a
platform, a proxy or a redirect says back is rid of it before anybody reads, records or logs it. `repr` never shows it.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from .exchange import Answer

SHOWN: Final = "<redacted>"
LOGGERS: Final = ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.proxy")
"""Where the libraries write what came back, at level DEBUG."""


class SecretPath:
    """`path` stands behind the base URL, starts with `/` and holds `secret`. Both are printable ASCII."""

    def __init__(self, path: str, secret: str) -> None:
        self._path = path
        forms = {secret, quote(secret, safe="")}
        self._text = re.compile("|".join(re.escape(form) for form in sorted(forms)), re.IGNORECASE)
        self._bytes = re.compile(self._text.pattern.encode(), re.IGNORECASE)
        self._filter = _Filter(self)
        self._watching = 0

    def __repr__(self) -> str:
        return f"SecretPath({SHOWN!r})"

    def before(self, base_path: str, target: str) -> bytes:
        """The target of the request line."""
        return f"{base_path}{self._path}{target}".encode("ascii")

    def out_of(self, text: str) -> str:
        return self._text.sub(SHOWN, text)

    def out_of_answer(self, answer: Answer) -> Answer:
        headers = {self.out_of(name): self.out_of(value) for name, value in answer.headers.items()}
        return replace(answer, headers=headers, body=self._bytes.sub(SHOWN.encode(), answer.body))

    def watch(self) -> None:
        """Keep it out of what the libraries log, until `watch_no_more` was called as often."""
        self._watching += 1
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self._filter)

    def watch_no_more(self) -> None:
        self._watching -= 1
        for name in LOGGERS if self._watching == 0 else ():
            logging.getLogger(name).removeFilter(self._filter)


class _Filter(logging.Filter):
    def __init__(self, secret: SecretPath) -> None:
        super().__init__()
        self._secret = secret

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        shown = self._secret.out_of(said)
        if shown != said:
            record.msg, record.args = shown, ()
        return True
