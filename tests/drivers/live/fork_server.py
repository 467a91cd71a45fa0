"""`wend peer` processes at the price of a fork: one process imports Wend, and forks for every peer.

    python -m tests.drivers.live.fork_server SOCKET

A connection to the socket is a peer: it takes the name of a configuration file, and gives the peer's pid, whatever the
peer prints, and its exit code. The server ends with its standard input.
"""

import os
import select
import signal
import socket
import sys
from pathlib import Path

import uvloop

import wend.drivers.live.process
from wend.console import app, peer_command

PRELOADED = (uvloop, wend.drivers.live.process, peer_command)


def main(path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    print("listening", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks for the exit codes of supervisors
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _supervise(connection)
        connection.close()


def _supervise(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    config = connection.makefile().readline().strip()
    peer = os.fork()
    if peer == 0:
        connection.sendall(f"pid {os.getpid()}\n".encode())  # before anything that the peer prints
        os.dup2(connection.fileno(), sys.stdout.fileno())
        sys.argv = ["wend", "peer", "--quiet", "--config", config]
        try:
            app.main()
        except SystemExit as ended:
            os._exit(ended.code if isinstance(ended.code, int) else 1)
        finally:
            sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(peer, 0)
    connection.sendall(f"exit {os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
