# SPDX-License-Identifier: MIT OR Apache-2.0
"""A file system whose server takes requests and never answers. A process that looks into it waits in the kernel, and no signal ends that.

It is FUSE, served by a thread of this process, in a mount namespace that the process must have for itself. The waits end when
the mount is removed by force, or the process ends.
"""

import ctypes
import os
import struct
import threading

FUSE_INIT = 26
# The first of them ends the connection to the server.
MNT_FORCE, MNT_DETACH = 1, 2
# len, opcode, unique, nodeid, uid, gid, pid, padding
REQUEST = struct.Struct("=IIQQIIIi")
# len, error, unique
ANSWER = struct.Struct("=IiQ")


class StuckMount:
    """The file system, mounted at a directory until it is closed."""

    def __init__(self, directory):
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"stuck", os.fsencode(directory), b"fuse", 0, options) != 0:
            number = ctypes.get_errno()
            os.close(self.fd)
            raise OSError(number, f"mount of fuse: {os.strerror(number)}")
        self.directory, self.libc = directory, libc
        self.initialised, self.asked = threading.Event(), threading.Event()
        threading.Thread(target=self.serve, daemon=True).start()
        if not self.initialised.wait(60):
            raise OSError("the kernel does not begin to speak FUSE")

    def serve(self):
        while True:
            try:
                data = os.read(self.fd, 1 << 20)
            except OSError:
                return
            _, opcode, unique, *_ = REQUEST.unpack_from(data)
            if opcode == FUSE_INIT:
                # struct fuse_init_out: version 7.31 without any feature.
                body = struct.pack("=IIIIHHIIHHI7I", 7, 31, 0, 0, 0, 0, 4096, 1, 1, 0, 0, *[0] * 7)
                os.write(self.fd, ANSWER.pack(ANSWER.size + len(body), 0, unique) + body)
                self.initialised.set()
            else:
                self.asked.set()

    def close(self):
        """Removes the mount, which ends all waits."""
        self.libc.umount2(os.fsencode(self.directory), MNT_FORCE | MNT_DETACH)
        os.close(self.fd)
