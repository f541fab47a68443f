"""Says where this interpreter lives, and what the kernel offers to it."""

import ctypes
import json
import os
import sys
import sysconfig

paths = sysconfig.get_paths()
folders = {sys.base_prefix, sys.base_exec_prefix, paths["stdlib"], paths["platstdlib"]}
libc = ctypes.CDLL(None)
with open("/proc/self/status") as status:
    seccomp = "\nSeccomp:" in status.read()
print(json.dumps({
    "program": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "folders": sorted(os.path.realpath(folder) for folder in folders),
    "tag": str(sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag),
    "version": sys.version_info[:2],
    # The size of nothing, and the flag that asks for the version.
    "landlock": max(libc.syscall(444, None, ctypes.c_size_t(0), 1), 0),
    "seccomp": seccomp,
}))
