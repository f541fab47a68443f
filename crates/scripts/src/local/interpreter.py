"""Reports the paths of this interpreter and the sandbox features of the kernel."""

import ctypes
import json
import os
import sys
import sysconfig

paths = sysconfig.get_paths()
folders = {sys.base_prefix, sys.base_exec_prefix, paths["stdlib"], paths["platstdlib"]}
program = sys.executable
if sys.prefix != sys.base_prefix:
    # A virtual environment may hold a copy of the program, which does not run without the environment.
    base = os.path.join(sys.base_exec_prefix, "bin", "python%d.%d" % sys.version_info[:2])
    if os.path.exists(base):
        program = base
libc = ctypes.CDLL(None)
with open("/proc/self/status") as status:
    seccomp = "\nSeccomp:" in status.read()
print(json.dumps({
    "program": os.path.realpath(program),
    "folders": sorted(os.path.realpath(folder) for folder in folders),
    "tag": str(sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag),
    "version": sys.version_info[:2],
    # No attributes of size 0 and the flag LANDLOCK_CREATE_RULESET_VERSION: returns the version.
    "landlock": max(libc.syscall(444, None, ctypes.c_size_t(0), 1), 0),
    "seccomp": seccomp,
}))
