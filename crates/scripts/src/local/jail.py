"""The sandbox of a script, set up by the process that is going to be inside.

In layers, so that the expensive part is done once for many scripts:

- `enter_root`: a root of its own with only what Python needs, read-only; no network. The server of
  warm interpreters runs in it, and so does a cold interpreter.
- `enter_cell`, for each script, before the script is known: its own processes, /tmp and /proc.
- `confine`, in the process that becomes the script: no privileges, few system calls, few files.

All of it runs before the first line of the script. A rejected step raises OSError; what that means on
this machine is found out once, by the probe script.
"""

import ctypes
import os
import resource
import socket
import sys

NOBODY = 65534

NEW_NS, NEW_CGROUP, NEW_UTS, NEW_IPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND = 1, 2, 4, 8, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
SECCOMP_MODE_FILTER, SIGCHLD = 2, 17
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38

# The same on every architecture.
SYS_MOUNT_SETATTR, SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 442, 444, 445, 446
SYS_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220}
AT_FDCWD, AT_RECURSIVE = -100, 0x8000

# Each pending signal takes kernel memory.
MAX_PENDING_SIGNALS = 256

# Keeps the interpreter's lock during calls, so that a child can go on after `clone`.
libc = ctypes.PyDLL(None, use_errno=True)


class FilterProgram(ctypes.Structure):
    """`struct sock_fprog`: the number of instructions, and their address."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def function(name, result_type=ctypes.c_int):
    native = libc[name]
    native.restype = result_type

    def call(*arguments):
        result = native(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
        if result == -1:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    return call


syscall = function("syscall", ctypes.c_long)
unshare, umount, capset = function("unshare"), function("umount2"), function("capset")
c_mount, pivot_root, c_prctl = function("mount"), function("pivot_root"), function("prctl")


def encode(*numbers, size=8):
    return b"".join(number.to_bytes(size, sys.byteorder) for number in numbers)


def prctl(option, argument=0, more=0):
    return c_prctl(option, argument, more, 0, 0)


def clone(flags):
    """A fork whose child is the first process of new namespaces."""
    return syscall(SYS_CLONE[os.uname().machine], flags | SIGCHLD, 0, 0, 0, 0)


def mount(source, target, kind=None, flags=0, options=None):
    encoded = [None if text is None else text.encode() for text in (source, target, kind, options)]
    source, target, kind, options = encoded
    c_mount(source, target, kind, flags, options)


def set_attributes(path, attributes, recursive=True):
    changes = encode(attributes, 0, 0, 0)
    flags = AT_RECURSIVE if recursive else 0
    syscall(SYS_MOUNT_SETATTR, AT_FDCWD, path.encode(), flags, changes, len(changes))


def write(path, text):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        content = memoryview(text.encode())
        while content:
            content = content[os.write(file, content):]
    finally:
        os.close(file)


def map_nobody(uid, gid):
    """Maps the outer user and group to nobody in a new user namespace; no others exist in it."""
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{NOBODY} {uid} 1")
    write("/proc/self/gid_map", f"{NOBODY} {gid} 1")


def become_nobody():
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    # Changing the user made /proc/self inaccessible.
    prctl(PR_SET_DUMPABLE, 1)


def enter_root(plan, extra=0):
    """Enters a root of its own, with `extra` namespaces beyond those that scripts may share."""
    flags = NEW_USER | NEW_NS | NEW_NET | NEW_IPC | NEW_UTS | NEW_CGROUP | extra
    built = False
    if os.geteuid() == 0:
        # The kernel never counts the processes of the real root, and root could read root's files.
        # So root builds with its own rights and then drops to the user nobody.
        try:
            unshare(NEW_NS)
            build_root(plan)
            built = True
            become_nobody()
        except OSError:
            if built:
                raise
    uid, gid = os.geteuid(), os.getegid()
    unshare(flags)
    map_nobody(uid, gid)
    if not built:
        build_root(plan)
    socket.sethostname("script")


def build_root(plan):
    """Builds the small root below /tmp and moves into it."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    # Opened first: the new mount hides the content of the real /tmp.
    sources = [os.open(source, os.O_PATH | os.O_CLOEXEC) for source, _ in plan["binds"]]
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    os.umask(0o022)
    for folder in ("dev", "proc", "tmp", "etc", "env", "packages"):
        os.mkdir("/tmp/" + folder)
    for source, (_, target) in zip(sources, plan["binds"]):
        bind(f"/proc/self/fd/{source}", target, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV)
        os.close(source)
    for device in DEVICES:
        bind(device, device, ATTR_NOSUID)
    for target, source in plan["links"]:
        os.makedirs("/tmp" + os.path.dirname(source), exist_ok=True)
        os.symlink(target, "/tmp" + source)
    os.symlink("/proc/self/fd", "/tmp/dev/fd")
    os.symlink("/tmp", "/tmp/dev/shm")
    write("/tmp/etc/passwd", f"nobody:x:{NOBODY}:{NOBODY}:nobody:/tmp:/bin/sh\n")
    write("/tmp/etc/group", f"nogroup:x:{NOBODY}:\n")
    # Only a namespace that sees a /proc may mount its own; each cell mounts its own over this one.
    mount("/proc", "/tmp/proc", None, MS_BIND | MS_REC)
    os.chdir("/tmp")
    pivot_root(b".", b".")
    umount(b".", MNT_DETACH)
    os.chdir("/")
    set_attributes("/", ATTR_RDONLY, recursive=False)


def bind(source, target, attributes):
    target = "/tmp" + target
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        write(target, "")
    mount(source, target, None, MS_BIND | MS_REC)
    set_attributes(target, attributes)


def enter_cell(plan):
    """Mounts /tmp and /proc of a cell, in its first process."""
    options = f"size={plan['disk_bytes']},nr_inodes={plan['disk_files']},mode=700"
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, options)
    mount_proc()


def choose_packages(packages):
    """Hides all package sets but this one; all of them if the name is empty."""
    if packages:
        mount("/packages/" + packages, "/env", None, MS_BIND | MS_REC)
    mount("tmpfs", "/packages", "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=4k")


def mount_proc():
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    for options in ("subset=pid", None):
        try:
            return mount("proc", "/proc", "proc", flags, options)
        except OSError:
            pass
    # Where the kernel rejects both, there is none: the host's must not be visible.
    mount("tmpfs", "/proc", "tmpfs", MS_RDONLY | flags, "size=4k")


def confine(plan, seconds, readable, writable):
    """Drops all rights that the script must not have. The filter comes last: it forbids these steps."""
    limits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, MAX_PENDING_SIGNALS),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_AS, plan["memory_bytes"]),
        (resource.RLIMIT_FSIZE, plan["disk_bytes"]),
        (resource.RLIMIT_NOFILE, plan["open_files"]),
        (resource.RLIMIT_CPU, processor_seconds(seconds)),
    ]
    if plan["count_processes"]:
        # Without a user namespace this would count all processes of the user. One is the supervisor.
        limits.append((resource.RLIMIT_NPROC, plan["processes"] + 1))
    for limit, value in limits:
        lower_limit(limit, value)
    prctl(PR_SET_DUMPABLE, 1)
    prctl(PR_SET_PDEATHSIG, 9)
    if not plan["sandbox"]:
        return
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    # No capabilities now, and because of the line above none through other programs.
    capset(encode(0x20080522, 0, size=4), encode(0, 0, 0))
    if plan["landlock"]:
        restrict_files(plan["landlock"], readable, writable)
    for program in plan["filters"]:
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program))


def processor_seconds(seconds):
    """All cores may be busy all the time; the wall clock is the effective limit."""
    return (os.cpu_count() or 1) * seconds + 1


def with_filters(plan):
    """Returns the plan with its filters as the kernel reads them."""
    filters = []
    for program in plan["filters"]:
        content = bytes.fromhex(program)
        # The structure holds an address: the buffer has to live as long.
        buffer = ctypes.create_string_buffer(content, len(content))
        prepared = FilterProgram(len(content) // 8, ctypes.addressof(buffer))
        prepared.buffer = buffer
        filters.append(prepared)
    return {**plan, "filters": filters}


def lower_limit(limit, value):
    _, hard = resource.getrlimit(limit)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(limit, (value, value))


# All devices that a script needs; the links in /dev lead to its own descriptors and folder. A mapping
# of /dev/zero would be shared memory, of which no process shows how much it holds.
DEVICES = tuple("/dev/" + name for name in ("null", "full", "random", "urandom"))
READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read files, read folders
DEVICE = READ | 1 << 1  # and write files


def restrict_files(version, readable, writable):
    everything = (1 << 13) - 1
    for since, right in ((2, 1 << 13), (3, 1 << 14), (5, 1 << 15)):
        if version >= since:
            everything |= right
    # Files; binding and connecting TCP; abstract sockets and signals outside of the domain.
    handled = encode(everything, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = syscall(SYS_LANDLOCK_CREATE, handled, size, 0)
    try:
        for rights, paths in ((READ, readable), (DEVICE, DEVICES), (everything, writable)):
            for path in paths:
                allow(rules, rights, path)
        syscall(SYS_LANDLOCK_RESTRICT, rules, 0)
    finally:
        os.close(rules)


def allow(rules, rights, path):
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # A missing path needs no permission.
    try:
        if not os.path.isdir(path):
            rights &= 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14
        syscall(SYS_LANDLOCK_ADD, rules, 1, encode(rights) + encode(descriptor, size=4), 0)
    finally:
        os.close(descriptor)
