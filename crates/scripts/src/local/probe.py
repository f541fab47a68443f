# Tries what a script must not be able to do, and prints what it could.
import _socket as socket, os, resource, signal

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


def network():
    dialled = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    dialled.settimeout(1)
    dialled.connect(("127.0.0.1", int(port)))
    return True


def routes():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))
    return True


def local_sockets():
    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect("\0" + name)
    return True


def signals():
    os.kill(int(process), 0)
    return True


def sees_processes():
    os.close(os.open(f"/proc/{process}/status", os.O_RDONLY))
    return os.readlink("/proc/self") != str(os.getpid()) or os.getpid() > 4


def fills_disk():
    room = os.statvfs(".")
    return room.f_blocks * room.f_frsize > int(disk)


def many_processes():
    return resource.getrlimit(resource.RLIMIT_NPROC)[0] > int(expected)


print("tried")
for attempt in (reads_files, sees_files, writes_files, network, routes, local_sockets, signals,
                sees_processes, fills_disk, many_processes):
    try:
        if attempt():
            print(attempt.__name__)
    except OSError:
        pass
