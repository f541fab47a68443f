"""Walls around a script, put up by the process that is going to be inside.

In layers, so that the dear part is paid once for many scripts:

- `enter_walls`: a root of its own with only what Python needs, read-only; no network. The server
  of warm interpreters lives there, and so does a cold interpreter.
- `enter_cell`, for each script, before it is known: its own processes and its own /tmp and /proc.
- `confine`, in the process that becomes the script: no privileges, few system calls, few files.

Everything here runs before a line of the script does. A step that is refused raises OSError; what
that means on this machine is found out once, by a script that tries.
"""

import os
import sys

# What `ctypes` is made of: all of it takes a third of the start of an interpreter.
import _ctypes

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

RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_CORE, RLIMIT_NPROC, RLIMIT_NOFILE = 0, 1, 4, 6, 7
RLIMIT_MEMLOCK, RLIMIT_AS, RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE = 8, 9, 11, 12

# How the interpreter is asked to compile; the last keeps the level of optimization.
FILE_INPUT, IS_UTF8, IGNORE_COOKIE, AS_STARTED = 257, 0x100, 0x800, -1

# Each takes memory of the kernel.
SIGNALS_PENDING = 256


class Long(_ctypes._SimpleCData):
    _type_ = "l"


class Byte(_ctypes._SimpleCData):
    _type_ = "c"


class Object(_ctypes._SimpleCData):
    _type_ = "O"


class Function(_ctypes.CFuncPtr):
    """Of the C library; keeps the interpreter's lock, so that a child may come of it."""

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO | _ctypes.FUNCFLAG_PYTHONAPI
    _restype_ = Long


class Making(_ctypes.CFuncPtr):
    """Of the interpreter itself; gives an object or raises."""

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_PYTHONAPI
    _restype_ = Object


libc = _ctypes.dlopen(None, 0)


def function(name):
    found = Function(_ctypes.dlsym(libc, name))

    def call(*arguments):
        result = found(*(Long(a) if isinstance(a, int) else a for a in arguments))
        if result == -1:
            code = _ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    return call


syscall, unshare, umount = function("syscall"), function("unshare"), function("umount2")
c_mount, pivot_root, c_prctl = function("mount"), function("pivot_root"), function("prctl")
capset, sethostname, prlimit = function("capset"), function("sethostname"), function("prlimit")
compile_string = Making(_ctypes.dlsym(libc, "Py_CompileStringExFlags"))


def words(*numbers, size=8):
    return b"".join(number.to_bytes(size, sys.byteorder) for number in numbers)


def held(content):
    """Bytes at an address that stays for as long as this is held."""
    return (Byte * len(content)).from_buffer(bytearray(content))


def compiled(code, name):
    """What `compile` makes of a module, without the types of syntax trees that it makes when it is
    first asked: for those an interpreter needs longer than for most scripts."""
    flags = held(words(IS_UTF8 | IGNORE_COOKIE, sys.version_info.minor, size=4))
    return compile_string(code.encode(), name.encode(), FILE_INPUT, flags, AS_STARTED)


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
    changes = words(attributes, 0, 0, 0)
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
    """In a new user namespace: who we were outside is nobody inside, and there is nobody else."""
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{NOBODY} {uid} 1")
    write("/proc/self/gid_map", f"{NOBODY} {gid} 1")


def become_nobody():
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    # Changing the user hides /proc/self from ourselves.
    prctl(PR_SET_DUMPABLE, 1)


def enter_walls(plan, extra=0):
    """Enters a root of its own, with `extra` namespaces beyond those that scripts may share."""
    flags = NEW_USER | NEW_NS | NEW_NET | NEW_IPC | NEW_UTS | NEW_CGROUP | extra
    built = False
    if os.geteuid() == 0:
        # The kernel never counts the processes of the real root, and root could read what root
        # owns. So root builds with its own rights and is nobody from then on.
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
    sethostname(b"script", 6)


def build_root(plan):
    """Makes the small root below /tmp and moves into it."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    # The staging place is going to hide what is in the real /tmp.
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
    # A namespace that sees no /proc may not have one of its own; each cell lays its own over this.
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
    """In the first process of the cell: its own /tmp and /proc."""
    options = f"size={plan['disk_bytes']},nr_inodes={plan['disk_files']},mode=700"
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, options)
    own_proc()


def choose_packages(packages):
    """Of all sets of packages this one remains, or none."""
    if packages:
        mount("/packages/" + packages, "/env", None, MS_BIND | MS_REC)
    mount("tmpfs", "/packages", "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=4k")


def own_proc():
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    for options in ("subset=pid", None):
        try:
            return mount("proc", "/proc", "proc", flags, options)
        except OSError:
            pass
    # Where the kernel refuses, there is none: the host's must not show.
    mount("tmpfs", "/proc", "tmpfs", MS_RDONLY | flags, "size=4k")


def confine(plan, seconds, readable, writable):
    """Gives up everything that the script must not have. The filter comes last: it forbids these
    very steps."""
    limits = [
        (RLIMIT_CORE, 0),
        (RLIMIT_MSGQUEUE, 0),
        (RLIMIT_SIGPENDING, SIGNALS_PENDING),
        (RLIMIT_MEMLOCK, 0),
        (RLIMIT_AS, plan["memory_bytes"]),
        (RLIMIT_FSIZE, plan["disk_bytes"]),
        (RLIMIT_NOFILE, plan["open_files"]),
        (RLIMIT_CPU, processor_seconds(seconds)),
    ]
    if plan["count_processes"]:
        # Without a user namespace this would count all processes of the user. One is the keeper.
        limits.append((RLIMIT_NPROC, plan["processes"] + 1))
    for limit, value in limits:
        lower(limit, value)
    prctl(PR_SET_DUMPABLE, 1)
    prctl(PR_SET_PDEATHSIG, 9)
    if not plan["sandbox"]:
        return
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    # None for now, and with the line above none by any program either.
    capset(words(0x20080522, 0, size=4), words(0, 0, 0))
    if plan["landlock"]:
        restrict_files(plan["landlock"], readable, writable)
    for program in plan["filters"]:
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, _ctypes.addressof(program))


def processor_seconds(seconds):
    """Each core may be busy all the time; the wall clock is the limit that counts."""
    return (os.cpu_count() or 1) * seconds + 1


def prepared(plan):
    """The same with its filters as the kernel takes them: a number of instructions, and where."""
    filters = []
    for program in plan["filters"]:
        content = held(bytes.fromhex(program))
        pointer = held(words(len(content) // 8, _ctypes.addressof(content)))
        pointer.content = content
        filters.append(pointer)
    return {**plan, "filters": filters}


def lower(limit, value):
    hard = bytearray(16)
    buffer = (Byte * 16).from_buffer(hard)
    prlimit(0, limit, None, buffer)
    value = min(value, int.from_bytes(hard[8:], sys.byteorder))
    prlimit(0, limit, words(value, value), None)


# All that is needed of /dev; the links beside them lead to the script's own descriptors.
DEVICES = tuple("/dev/" + name for name in ("null", "zero", "full", "random", "urandom"))
READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read files, read folders
DEVICE = READ | 1 << 1  # and write files


def restrict_files(version, readable, writable):
    everything = (1 << 13) - 1
    for since, right in ((2, 1 << 13), (3, 1 << 14), (5, 1 << 15)):
        if version >= since:
            everything |= right
    # Files; binding and dialling TCP; sockets without a name and signals out of the domain.
    handled = words(everything, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
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
        return  # What is not there needs no permission.
    try:
        if not os.path.isdir(path):
            rights &= 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14
        syscall(SYS_LANDLOCK_ADD, rules, 1, words(rights) + words(descriptor, size=4), 0)
    finally:
        os.close(descriptor)
