"""Runs the script of this pod as a child process and reports its exit.

Arguments: seconds, bytes of output, processes, and the largest input for a variable in bytes.
The output of the script goes to the log of the pod, in base64. The termination message of the
container has one line of facts, including the limit that stopped the script, and the end of its stderr.
"""
import binascii, fcntl, os, resource, select, signal, sys, time

SCRIPT, INPUT = "/rockbot/script.py", "/rockbot/input"
PACKAGES = "/rockbot-packages"
TERMINATION_LOG, MAX_STDERR = "/dev/termination-log", 3968
LINE, FLUSH_SECONDS = 12000, 0.1
SECONDS, OUTPUT, PROCESSES, VARIABLE = (int(argument) for argument in sys.argv[1:5])


def become_script(out, err):
    """In the child: becomes the script."""
    os.setsid()
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
    env = {k: v for k, v in os.environ.items() if not k.startswith("KUBERNETES_")}
    if os.path.exists(INPUT):
        env["ROCKBOT_INPUT_FILE"] = INPUT
        if os.path.getsize(INPUT) <= VARIABLE:
            with open(INPUT, encoding="utf-8", newline="") as file:
                env["ROCKBOT_INPUT"] = file.read()
    isolated = "-I"
    if os.path.isdir(PACKAGES):
        # Isolated mode would ignore the variable; it also ignores those of the image.
        env = {k: v for k, v in env.items() if not k.startswith("PYTHON")}
        env["PYTHONPATH"], isolated = PACKAGES, "-s"
    os.execve(sys.executable, ["python3", isolated, "-B", "-X", "utf8", SCRIPT], env)


def take(pipe):
    """Returns the available content of a pipe, or `None` without any."""
    try:
        return os.read(pipe, 65536)
    except BlockingIOError:
        return None


class Log:
    """The log of the pod: lines of base64. A node adds dozens of bytes to each line, so lines are
    long, and small writes are combined."""

    def __init__(self):
        self.buffer, self.since, self.printed = b"", None, 0

    def append(self, data):
        """Appends what fits; returns whether all of it did."""
        capacity = OUTPUT - self.printed
        self.buffer += data[:capacity]
        self.printed += len(data[:capacity])
        self.since = self.since or time.monotonic()
        if len(self.buffer) >= LINE:
            self.flush()
        return len(data) <= capacity

    def flush(self):
        line = binascii.b2a_base64(self.buffer) if self.buffer else b""
        self.buffer, self.since = b"", None
        while line:
            line = line[os.write(1, line):]


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


def main():
    (output, out), (errors, err), (woken, waker) = os.pipe(), os.pipe(), os.pipe()
    for pipe in output, errors, woken, waker:
        fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_NONBLOCK)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            become_script(out, err)
        finally:
            os._exit(127)
    os.close(out)
    os.close(err)
    ended, status, log, stderr = None, None, Log(), b""
    open_pipes = [output, errors]
    while ended is None:
        now = time.monotonic()
        if now >= started + SECONDS:
            ended = "timeout"
            break
        until = started + SECONDS
        if log.since:
            until = min(until, log.since + FLUSH_SECONDS)
            if now >= until:
                log.flush()
                continue
        ready, _, _ = select.select(open_pipes + [woken], [], [], until - now)
        if woken in ready:
            take(woken)
            status = reap(child)
            if status is not None:
                ended = "exit"
        # After the exit, as much as a pipe holds: the last output.
        max_reads = 64 if ended else 1
        for pipe in list(open_pipes):
            for _ in range(max_reads):
                data = take(pipe)
                if data == b"":
                    open_pipes.remove(pipe)
                if not data:
                    break
                if pipe == errors:
                    stderr = (stderr + data)[-MAX_STDERR:]
                elif not log.append(data):
                    ended = "output"
                    break
    log.flush()
    elapsed = int((time.monotonic() - started) * 1000)
    code = {"timeout": 124, "output": 137}.get(ended)
    if ended == "exit":
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            code = 128 - code
        if code == 137 and out_of_memory():
            ended = "memory"
    text = stderr.decode("utf-8", "replace").encode()[-MAX_STDERR:]
    text = text.decode("utf-8", "ignore")
    try:
        with open(TERMINATION_LOG, "w", encoding="utf-8", newline="") as file:
            file.write("%s %d %d %d\n%s" % (ended, code, elapsed, log.printed, text))
    except OSError:
        pass
    os._exit(code)


main()
