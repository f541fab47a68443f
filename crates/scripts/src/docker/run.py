"""Runs one script as a child process, and tells its runner what becomes of it.

The first process of a container. Says on its standard output, in frames: `r` when it is ready for the
script, `s` when the script starts, `o` and `e` for what it prints and complains about, `x` for its
end. A frame is a letter, a length of four bytes and so many bytes. The script can't write there.
Reads the script as one line of JSON. The end of standard input is the end of everything.
"""
import ctypes, fcntl, json, os, resource, select, signal, struct, sys, time

FOLDER = "/tmp"
SCRIPT, INPUT = FOLDER + "/script.py", FOLDER + "/input"
PR_SET_DUMPABLE = 4


def say(kind, data=b""):
    data = kind + struct.pack("<I", len(data)) + data
    while data:
        data = data[os.write(1, data):]


def keep(path, text):
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def become_script(request, go, out, err):
    """In the child: turns into the script once it may."""
    # The kernel ends a script for its memory, not who tells of it.
    try:
        keep("/proc/self/oom_score_adj", "1000")
    except OSError:
        pass
    os.read(go, 1)
    os.setsid()
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    for number in (signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    env = {"HOME": FOLDER, "TMPDIR": FOLDER, "LANG": "C.UTF-8"}
    env["PATH"] = os.environ.get("PATH", os.defpath)
    if request["input"] is not None:
        env["ROCKBOT_INPUT_FILE"] = INPUT
        if request["variable"]:
            env["ROCKBOT_INPUT"] = request["input"]
    os.execve(sys.executable, ["python3", "-I", "-B", "-X", "utf8", SCRIPT], env)


def reap(child):
    """The status of the child if it ended; orphans end with it."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def out_of_memory():
    """Whether the kernel ended a process of this container for its memory."""
    for path in "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control":
        try:
            with open(path) as file:
                return any(l.startswith("oom_kill ") and l.split()[1] != "0" for l in file)
        except OSError:
            pass
    return False


def pass_on(pipe, kind, looks):
    """Passes on what is in a pipe; false when nothing more can come."""
    for _ in range(looks):
        try:
            data = os.read(pipe, 65536)
        except BlockingIOError:
            return True
        if not data:
            return False
        say(kind, data)
    return True


def main():
    say(b"r")
    request = json.loads(sys.stdin.buffer.readline())
    keep(SCRIPT, request["script"])
    if request["input"] is not None:
        keep(INPUT, request["input"])
    (go, went), (output, out), (errors, err), (woken, waker) = (os.pipe() for _ in range(4))
    for pipe in output, errors, woken, waker:
        fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_NONBLOCK)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # The first process of a container is only hit by signals that it asks for.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # For a runner that is gone and whose end did not get through.
    signal.signal(signal.SIGALRM, lambda *_: os._exit(124))
    child = os.fork()
    if child == 0:
        try:
            os.close(went)
            become_script(request, go, out, err)
        finally:
            os._exit(127)
    for pipe in go, out, err:
        os.close(pipe)
    # Of the same user, the script could write into this process otherwise, or speak in its name.
    if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        os._exit(1)
    say(b"s")
    begun = time.monotonic()
    signal.alarm(request["seconds"])
    os.close(went)
    kinds, status = {output: b"o", errors: b"e"}, None
    while status is None:
        ready, _, _ = select.select([0, woken, *kinds], [], [])
        if 0 in ready:
            os._exit(124)
        if woken in ready:
            os.read(woken, 512)
            status = reap(child)
        # After the end as much as a pipe holds, for what it had said last.
        for pipe in list(kinds):
            if not pass_on(pipe, kinds[pipe], 1 if status is None else 64):
                del kinds[pipe]
    elapsed = int((time.monotonic() - begun) * 1000)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        code = 128 - code
    memory = code == 137 and out_of_memory()
    say(b"x", b"%d %d %d" % (code, elapsed, memory))
    os._exit(0)


main()
