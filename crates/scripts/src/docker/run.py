"""Runs one script as a child process and reports its progress to the runner.

The first process of a container. Writes frames to its standard output, which the script can't write
to: `r` when it is ready for the script, `s` when the script starts, `o` and `e` for the script's
stdout and stderr, `x` for its exit. A frame is a letter, a length of four bytes and that many bytes.
Reads the script as one line of JSON. At the end of standard input it exits, and the container stops.
"""
import ctypes, fcntl, json, os, resource, select, signal, struct, sys, time

FOLDER = "/tmp"
SCRIPT, INPUT = FOLDER + "/script.py", FOLDER + "/input"
PR_SET_DUMPABLE = 4


def send_frame(kind, data=b""):
    data = kind + struct.pack("<I", len(data)) + data
    while data:
        data = data[os.write(1, data):]


def write_file(path, text):
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def become_script(request, go, out, err):
    """In the child: becomes the script once `go` is closed."""
    # So that the kernel kills a script for its memory, and not its parent.
    try:
            write_file("/proc/self/oom_score_adj", "1000")
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
    """Reaps all ended children; returns the status of the script if it is among them."""
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
    """Returns whether the kernel killed a process of this container for its memory."""
    for path in "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control":
        try:
            with open(path) as file:
                return any(l.startswith("oom_kill ") and l.split()[1] != "0" for l in file)
        except OSError:
            pass
    return False


def forward(pipe, kind, max_reads):
    """Forwards the content of a pipe; returns false at its end."""
    for _ in range(max_reads):
        try:
            data = os.read(pipe, 65536)
        except BlockingIOError:
            return True
        if not data:
            return False
        send_frame(kind, data)
    return True


def main():
    send_frame(b"r")
    request = json.loads(sys.stdin.buffer.readline())
    write_file(SCRIPT, request["script"])
    if request["input"] is not None:
        write_file(INPUT, request["input"])
    (go, start), (output, out), (errors, err), (woken, waker) = (os.pipe() for _ in range(4))
    for pipe in output, errors, woken, waker:
        fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_NONBLOCK)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # The first process of a container only receives signals that it handles.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # If the runner was lost and the end of standard input was not delivered.
    signal.signal(signal.SIGALRM, lambda *_: os._exit(124))
    child = os.fork()
    if child == 0:
        try:
            os.close(start)
            become_script(request, go, out, err)
        finally:
            os._exit(127)
    for pipe in go, out, err:
        os.close(pipe)
    # As the same user, the script could otherwise write to this process or send frames in its name.
    if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        os._exit(1)
    send_frame(b"s")
    started = time.monotonic()
    signal.alarm(request["seconds"])
    os.close(start)
    kinds, status = {output: b"o", errors: b"e"}, None
    while status is None:
        ready, _, _ = select.select([0, woken, *kinds], [], [])
        if 0 in ready:
            os._exit(124)
        if woken in ready:
            os.read(woken, 512)
            status = reap(child)
        # After the exit, as much as a pipe holds: the last output.
        for pipe in list(kinds):
            if not forward(pipe, kinds[pipe], 1 if status is None else 64):
                del kinds[pipe]
    elapsed = int((time.monotonic() - started) * 1000)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        code = 128 - code
    memory = code == 137 and out_of_memory()
    send_frame(b"x", b"%d %d %d" % (code, elapsed, memory))
    os._exit(0)


main()
