"""Walls around a script, put up by the process that is going to be inside.

Two layers, so that the dear part is paid once for many scripts:

- `enter_walls`: a root of its own with only what Python needs, read-only; no network. The server
  of warm interpreters lives there, and so does a cold interpreter.
- `enter_cell`, for each script: its own processes and its own /tmp and /proc.
- `confine`, in the process that becomes the script: no privileges, few system calls, few files.

Everything here runs before a line of the script does. A step that is refused raises OSError; what
was refused on this machine in general is found out once, by `what_works`.
"""

import ctypes
import os
import resource

NOBODY = 65534

NEW_NS, NEW_CGROUP, NEW_UTS, NEW_IPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND = 1, 2, 4, 8, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38

# The same on every architecture.
SYS_MOUNT_SETATTR, SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 442, 444, 445, 446
AT_FDCWD, AT_RECURSIVE = -100, 0x8000

libc = ctypes.CDLL(None, use_errno=True)


def check(result):
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def syscall(number, *arguments):
    return check(libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)))


def prctl(option, *arguments):
    padded = arguments + (0,) * (4 - len(arguments))
    return check(libc.prctl(option, *map(ctypes.c_ulong, padded)))


def unshare(flags):
    check(libc.unshare(flags))


def mount(source, target, kind=None, flags=0, options=None):
    encoded = [None if text is None else text.encode() for text in (source, target, kind, options)]
    source, target, kind, options = encoded
    check(libc.mount(source, target, kind, ctypes.c_ulong(flags), options))


def set_attributes(path, attributes, recursive=True):
    words = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    name = ctypes.create_string_buffer(path.encode())
    syscall(SYS_MOUNT_SETATTR, AT_FDCWD, ctypes.addressof(name), AT_RECURSIVE if recursive else 0,
            ctypes.addressof(words), ctypes.sizeof(words))


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


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
    check(libc.sethostname(b"script", 6))


def build_root(plan):
    """Makes the small root below /tmp and moves into it."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    os.umask(0o022)
    for folder in ("dev", "proc", "tmp", "etc", "env", "packages"):
        os.mkdir("/tmp/" + folder)
    # The staging place hides what is in the real /tmp; that stays reachable by descriptor.
    for source, target in plan["binds"]:
        bind(source, target, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV)
    for name in ("null", "zero", "full", "random", "urandom"):
        bind("/dev/" + name, "/dev/" + name, ATTR_NOSUID)
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
    check(libc.pivot_root(b".", b"."))
    check(libc.umount2(b".", MNT_DETACH))
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


def new_cell():
    """Before the fork whose child is the first process of the cell."""
    unshare(NEW_USER | NEW_NS | NEW_PID)
    map_nobody(NOBODY, NOBODY)


def enter_cell(plan, packages):
    """In the first process of the cell: an own /tmp and /proc, and of all packages only these."""
    options = f"size={plan['disk_bytes']},nr_inodes={plan['disk_files']},mode=700"
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, options)
    own_proc()
    if plan["packages"]:
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
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_AS, plan["memory_bytes"]),
        (resource.RLIMIT_FSIZE, plan["disk_bytes"]),
        (resource.RLIMIT_NOFILE, plan["open_files"]),
        # Each core may be busy all the time; the wall clock is the limit that counts.
        (resource.RLIMIT_CPU, (os.cpu_count() or 1) * seconds + 1),
    ]
    if plan["count_processes"]:
        # Without a user namespace this would count all processes of the user. One is the keeper.
        limits.append((resource.RLIMIT_NPROC, plan["processes"] + 1))
    for limit, value in limits:
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
    prctl(PR_SET_DUMPABLE, 1)
    prctl(PR_SET_PDEATHSIG, 9)
    if not plan["sandbox"]:
        return
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    drop_capabilities()
    if plan["landlock"]:
        restrict_files(plan["landlock"], readable, writable)
    for program in plan["filters"]:
        install_filter(bytes(program))


def drop_capabilities():
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) == -1:
            break
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    check(libc.capset(header, (ctypes.c_uint32 * 6)()))


def install_filter(program):
    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]

    program = Filter(len(program) // 8, program)
    prctl(PR_SET_SECCOMP, 2, ctypes.addressof(program))


READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read files, read folders
DEVICE = READ | 1 << 1  # and write files


def landlock_version():
    try:
        return syscall(SYS_LANDLOCK_CREATE, 0, 0, 1)
    except OSError:
        return 0


def restrict_files(version, readable, writable):
    everything = (1 << 13) - 1
    for since, right in ((2, 1 << 13), (3, 1 << 14), (5, 1 << 15)):
        if version >= since:
            everything |= right
    # Files; binding and dialling TCP; sockets without a name and signals out of the domain.
    handled = (ctypes.c_uint64 * 3)(everything, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = syscall(SYS_LANDLOCK_CREATE, ctypes.addressof(handled), size, 0)
    try:
        for rights, paths in ((READ, readable), (DEVICE, ["/dev"]), (everything, writable)):
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
        rule = ctypes.create_string_buffer(
            rights.to_bytes(8, "little") + descriptor.to_bytes(4, "little"), 12)
        syscall(SYS_LANDLOCK_ADD, rules, 1, ctypes.addressof(rule), 0)
    finally:
        os.close(descriptor)
