"""Loaded into an MCP server through PYTHONPATH: writes what the server itself read and wrote on its wire to
PID.in and PID.out in the folder $KAMS_WITNESS, its command line to PID.argv, and the process ids of its ancestors to
PID.tree.

The Python SDK moves the wire to duplicates of fd 0 and 1 and opens those with os.fdopen(closefd=False); that is
where this steps in.
"""

import io
import os
import sys

_folder = os.environ.get("KAMS_WITNESS")


def _ancestors():
    pid = os.getpid()
    while pid > 1:
        with open(f"/proc/{pid}/stat") as stat:
            pid = int(stat.read().rpartition(")")[2].split()[1])
        yield pid


class _Witness(io.FileIO):
    def __init__(self, fd, mode, end):
        super().__init__(fd, mode, closefd=False)
        path = os.path.join(_folder, f"{os.getpid()}.")
        with open(path + "argv", "wb") as argv:
            argv.write("\0".join(sys.orig_argv).encode())
        with open(path + "tree", "w") as tree:
            tree.write("\n".join(map(str, _ancestors())))
        self._log = open(path + end, "ab", buffering=0)

    def readinto(self, buffer):
        count = super().readinto(buffer)
        if count:
            self._log.write(memoryview(buffer)[:count])
        return count

    def write(self, data):
        count = super().write(data)
        if count:
            self._log.write(memoryview(data)[:count])
        return count


def _fdopen(fd, mode="r", *args, closefd=True, **kwargs):
    if not closefd and mode == "rb":
        return io.BufferedReader(_Witness(fd, "r", "in"))
    if not closefd and mode == "wb":
        return io.BufferedWriter(_Witness(fd, "w", "out"))
    return _open(fd, mode, *args, closefd=closefd, **kwargs)


if _folder:
    _open, os.fdopen = os.fdopen, _fdopen
