"""Attempts what a script must not be able to do, and prints the attempts that succeeded."""
import ctypes, errno, mmap, os, resource, socket

with open(os.environ["ROCKBOT_INPUT_FILE"]) as file:
    secret, process, port, name, disk, expected = file.read().split("\n")


def reads_files():
    for path in (secret, "/etc/shadow", "/etc/hosts", "/etc/hostname", "/var/log"):
        try:
            os.close(os.open(path, os.O_RDONLY))
            return True
        except OSError:
            pass
    return False


def sees_files():
    os.stat(secret)
    return True


def writes_files():
    for folder in (os.path.dirname(secret), "/", "/var/tmp", "/dev/shm/.."):
        try:
            os.close(os.open(folder + "/probe", os.O_WRONLY | os.O_CREAT))
            return not os.path.exists("/tmp/probe")
        except OSError:
            pass
    return False


def changes_files():
    # Attributes that the file has already: only the attempt matters.
    for change in (lambda: os.chmod(secret, 0o600), lambda: os.utime(secret),
                   lambda: os.removexattr(secret, "user.rockbot"), lambda: os.truncate(secret, 6)):
        try:
            change()
            return True
        except OSError as error:
            if error.errno == errno.ENODATA:
                return True
    return False


def uses_devices():
    for name in ("kmsg", "console", "fuse", "kvm", "mem", "net/tun"):
        try:
            os.close(os.open("/dev/" + name, os.O_RDONLY | os.O_NOCTTY))
            return True
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.EIO, errno.ENODEV):
                return True
    return False


def network():
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.settimeout(1)
    connection.connect(("127.0.0.1", int(port)))
    return True


def routes():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))
    return True


def local_sockets():
    try:
        socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        return True
    except OSError:
        pass
    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect("\0" + name)
    return True


def signals():
    os.kill(int(process), 0)
    return True


def sees_processes():
    os.getsid(int(process))
    return os.readlink("/proc/self") != str(os.getpid()) or os.getpid() > 4


def fills_disk():
    filesystem = os.statvfs(".")
    return filesystem.f_blocks * filesystem.f_frsize > int(disk)


def many_processes():
    return resource.getrlimit(resource.RLIMIT_NPROC)[0] > int(expected)


def shares_memory():
    for device in (None, "/dev/zero"):
        try:
            mmap.mmap(os.open(device, os.O_RDWR) if device else -1, mmap.PAGESIZE)
            return True
        except OSError:
            pass
    return False


def pins_memory():
    # Without any parts of memory: only the attempt matters.
    _, pipe = os.pipe()
    return ctypes.CDLL(None).vmsplice(pipe, None, ctypes.c_size_t(0), 0) == 0


print("probed")
for attempt in (reads_files, sees_files, writes_files, changes_files, uses_devices, network, routes,
                local_sockets, signals, sees_processes, fills_disk, many_processes, shares_memory,
                pins_memory):
    try:
        if attempt():
            print(attempt.__name__)
    except OSError:
        pass
