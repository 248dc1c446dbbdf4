"""`python -m hallmark`: the same as the command `hallmark`."""

from hallmark.cli import app

app(prog_name="hallmark")
