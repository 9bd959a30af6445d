"""What mpiexec starts in place of `python -m mpies`: it has the server of tests/warm_start.py fork that process.

Its signals go on to that process, which is killed where this one is.
"""

import contextlib
import json
import os
import signal
import socket
import sys


def pass_on(number, _):
    with contextlib.suppress(ProcessLookupError):  # it has ended, and its code is on the way
        os.kill(pid, number)


with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect(os.environ["MPIES_TEST_SERVER"])
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [request], [0, 1, 2])
    pid = int.from_bytes(server.recv(8), "little")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, pass_on)
    code = os.waitstatus_to_exitcode(int.from_bytes(server.recv(8), "little"))
sys.exit(code if code >= 0 else 128 - code)
