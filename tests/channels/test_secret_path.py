"""A credential in the path: it is on the wire, and in nothing that anybody reads."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from msgledger.adapters.driver import Driver
from msgledger.adapters.exchange import Answer, Fault, Request
from msgledger.adapters.secret_path import LOGGERS, SHOWN, SecretPath

from .test_driver import OK, Listener

SECRET = "AbC-123_x:y/z"
QUOTED = "AbC-123_x%3Ay%2Fz"
POST = Request("POST", "/send", (("a", "b c"),), (("content-type", "text/plain"),), b"hello")


def asked(*answers: Any, base: str = "", close: bool = True) -> tuple[list[bytes], Answer | Fault, Driver]:
    async def run() -> tuple[list[bytes], Answer | Fault, Driver]:
        async with Listener(*answers) as listener:
            driver = Driver(listener.url + base, secret_path=SecretPath(f"/bot{SECRET}", SECRET))
            try:
                return listener.requests, await driver.send(POST, {}, deadline_s=5.0), driver
            finally:
                await driver.close()

    return asyncio.run(run())


@pytest.mark.parametrize("base", ["", "/api"])
def test_it_is_on_the_wire(base: str) -> None:
    """ADP-1: behind the base URL's own path, in front of the request's."""
    (request,), answer, driver = asked(OK, base=base)
    assert request.startswith(f"POST {base}/bot{SECRET}/send?a=b+c HTTP/1.1\r\n".encode())
    assert isinstance(answer, Answer) and answer.body == b"ok"
    assert SECRET not in repr(driver) and SECRET not in repr(driver._secret)


def test_what_comes_back_is_rid_of_it(caplog: pytest.LogCaptureFixture) -> None:
    """CH-1: in the body, in headers, in any spelling that a URL has for it; and in the libraries' logs at any level."""
    caplog.set_level(logging.DEBUG)
    page = f"{SECRET} {QUOTED} {QUOTED.lower()}".encode()
    head = f"HTTP/1.1 302 Found\r\nlocation: https://x/{QUOTED}\r\ncontent-length: {len(page)}\r\n\r\n"
    _, answer, _ = asked(head.encode() + page)
    assert isinstance(answer, Answer)
    assert answer.body == " ".join([SHOWN] * 3).encode()
    assert answer.headers["location"] == f"https://x/{SHOWN}"
    assert "302" in caplog.text
    assert SECRET not in caplog.text and QUOTED not in caplog.text


def test_an_error_says_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    """CH-1: a connection that is closed, and an answer that is none."""
    caplog.set_level(logging.DEBUG)
    for bad in (
        None,
        f"HTTP/9 {SECRET}\r\n\r\n".encode(),
        f"HTTP/1.1 302 x\r\nlocation: http://[{SECRET}\r\n\r\n".encode(),
    ):
        _, answer, _ = asked(bad)
        assert isinstance(answer, Fault) or answer.status == 302
        assert SECRET not in repr(answer)
    assert SECRET not in caplog.text


def test_nothing_is_left_in_the_logging() -> None:
    """CH-1: the filters go with the last driver that needs them."""
    before = {name: list(logging.getLogger(name).filters) for name in LOGGERS}

    async def run() -> None:
        secret = SecretPath(f"/bot{SECRET}", SECRET)
        first, second = (Driver("http://127.0.0.1:9", secret_path=secret) for _ in range(2))
        await first.open()
        await second.open()
        await first.close()
        assert all(secret._filter in logging.getLogger(name).filters for name in LOGGERS)
        await second.close()

    asyncio.run(run())
    assert {name: list(logging.getLogger(name).filters) for name in LOGGERS} == before
