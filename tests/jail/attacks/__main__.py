"""`runner.pyz`: reads {"case", "targets"} lines, tries each case in a process of its own, answers a line each.

As the runner of a jail it only starts itself anew as a command, so that the attacker is what a command would be.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys


def tried(case, targets):
    """What came of it, from a process that may die of it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        signal.alarm(20)
        try:
            answer = {"worked": bool(case.attempt(targets)), "error": ""}
        except OSError as error:
            answer = {"worked": False, "error": f"{type(error).__name__}: {error}", "errno": error.errno}
        except Exception as error:
            answer = {"worked": False, "error": f"{type(error).__name__}: {error}"}
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        data = pipe.read()
    status = os.waitpid(pid, 0)[1]
    return json.loads(data) if data else {"worked": False, "error": f"died with wait status {status}"}


def serve():
    from attacks import network, outside, privilege, secrecy
    from attacks.registry import CASES

    assert network and outside and privilege and secrecy
    print(json.dumps({name: [case.control, *case.errnos] for name, case in CASES.items()}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(tried(CASES[asked["case"]], asked["targets"])), flush=True)


if "--attack" in sys.argv:
    serve()
else:
    subprocess.run([sys.executable, "-I", "-S", sys.argv[0], "--attack"])
