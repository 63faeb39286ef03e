"""A slow way to a server: what comes in on stdin goes there after a while, what it answers to stdout at once.

    slow.py PORT SECONDS

sshd's process before the login lives so long then that the allocator's upkeep runs in it.
"""

import os
import socket
import sys
import threading
import time


def send(server, seconds):
    while data := os.read(0, 1 << 16):
        time.sleep(seconds)
        server.sendall(data)
    server.shutdown(socket.SHUT_WR)


def main():
    server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    threading.Thread(target=send, args=(server, float(sys.argv[2])), daemon=True).start()
    while data := server.recv(1 << 16):
        os.write(1, data)
    os._exit(0)   # not to wait for what ssh would still send


if __name__ == "__main__":
    main()
