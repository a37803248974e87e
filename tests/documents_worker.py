"""Runs `headgate` again and again in one process: words and environment in, exit code and output out, as JSON lines."""

from __future__ import annotations

import json
import os
import sys
import traceback

from click.testing import CliRunner

from headgate.cli import main


def answer(line: str) -> str:
    words, environment = json.loads(line)
    done = CliRunner().invoke(main, words, env=environment, prog_name="headgate")
    output = done.output
    if done.exc_info is not None and not isinstance(done.exception, SystemExit | None):
        output += "".join(traceback.format_exception(done.exception))
    return json.dumps([done.exit_code, output])


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Java prints on its own is no answer
    for line in sys.stdin:
        print(answer(line), file=answers, flush=True)
