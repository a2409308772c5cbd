"""How fast the ledger is, beside what the disk allows and beside a ledger that updates rows in place.

    .venv/bin/python -m bench [--tiny] [--profile]

Everything that is compared runs in turns within one run, so that whatever else the machine does hits all alike. Read
the ratios first. Not part of the installed package.
"""
