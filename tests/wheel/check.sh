#!/bin/sh
# The wheel as a stranger gets it: built, installed in a clean venv, imported and run from a folder that has a cli.py and
# an adapters/ package of its own, which must neither be shadowed nor shadow ours.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m build --wheel --outdir "$work/dist" "$root" >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$work"/dist/*.whl
mkdir -p "$work/gateway/adapters"
cd "$work/gateway"
echo 'NAME = "the gateway"' >cli.py
echo 'NAME = "the gateway"' >adapters/__init__.py
cat >app.py <<'PY'
import asyncio

import adapters
import cli

import msgledger
from msgledger.adapters.surface import Capabilities
from msgledger.ledger.message import Target

assert cli.NAME == adapters.NAME == "the gateway"
assert msgledger.Target is Target, "the public face and the module must be one class"
assert Capabilities().text.max > 0


async def deliver(unit: msgledger.RenderedUnit, context: msgledger.SendContext) -> str:
    return "1"


async def main() -> None:
    channel = msgledger.CallableChannel("app", deliver=deliver)
    async with msgledger.open("ledger.db", channels=[channel]) as gateway:
        delivery = await gateway.send(msgledger.Message.text("hello", to=Target.group("app", "ops")))
        assert delivery.status == "sent", delivery
    print("sent", delivery.receipt.primary_platform_id)


asyncio.run(main())
PY
"$work/venv/bin/python" app.py
"$work/venv/bin/msgledger" --version
"$work/venv/bin/msgledger" --ledger ledger.db intents list
"$work/venv/bin/msgledger" --ledger ledger.db doctor
"$work/venv/bin/python" -m pip list --format=freeze --disable-pip-version-check
files=$("$work/venv/bin/python" -m zipfile --list "$work"/dist/*.whl)
case "$files" in *tests/* | *bench/*) echo "the wheel holds tests or benchmarks"; exit 1 ;; esac
case "$files" in *msgledger/py.typed*) ;; *) echo "the wheel lacks py.typed"; exit 1 ;; esac
echo "wheel: fine"
