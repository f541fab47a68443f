"""Turns requests into scripts: a warm server forks for each script, a cold one serves a single script.

A request is one byte with descriptors over the socket at standard input: the script's control socket,
its stdout, its stderr, and the entrance to its memory cgroup if it has one. Three processes are involved:

- this server, which reads no script: it creates cells, some of them in advance;
- a supervisor, the first process of a cell: it reads the request, watches and stops the script, and
  reports over the control socket;
- the script.

When the other end of the control socket closes, the supervisor stops the script.
"""

import os
import resource
import select
import signal
import socket
import sys

import jail

CONTROL_CHUNK_BYTES = 64 * 1024
TICK_MS = 50
# The memory of a process in /proc/PID/status: its pages and its page tables.
UNSHARED = "VmPTE:", "HugetlbPages:"
MEMORY = "VmRSS:", "VmSwap:", *UNSHARED
# Its part of the pages that it shares, in /proc/PID/smaps_rollup.
SHARES = "Pss:", "SwapPss:"
# All processes of a script together may have this many times the open files of one process.
FILES_FACTOR = 4
# The number of cells that are created in advance.
SPARE_CELLS = 2
# How long the creation of the next spare cell is put off in favor of a script that starts, unless
# another request arrives.
SPARE_DELAY_MS = 10
# The longest timeout of a script.
MAX_SECONDS = 300
# The exit code of a process that did not become a script.
NOT_STARTED = 125
# The message from a supervisor to the server when no more requests follow, in place of a cell's number.
NO_MORE_REQUESTS = 0
MAX_DESCRIPTORS = 4


def serve(plan, warm):
    """Returns in the process that becomes a script, with the script's request."""
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Supervisors report by themselves.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jail.prctl(jail.PR_SET_CHILD_SUBREAPER, 1)
    plan = jail.with_filters(plan)
    if plan["namespaces"]:
        try:
            jail.enter_root(plan, 0 if warm else jail.NEW_PID)
        except OSError as error:
            sys.exit(describe(error))
    else:
        # So that no script of the same user can read its memory.
        jail.prctl(jail.PR_SET_DUMPABLE, 0)
    own = plan["namespaces"] and warm
    taken, take = os.pipe()
    requests.send(b"r")
    number, spares = 0, {}
    while True:
        number += 1
        child = jail.clone(jail.NEW_USER | jail.NEW_NS | jail.NEW_PID) if own else os.fork()
        if child == 0:
            for descriptor in (taken, *spares.values()):
                os.close(descriptor)
            script = run_cell(plan, own, requests, take, number)
            # Its descriptor is the script's standard input by now, and must stay open.
            requests.detach()
            return script
        if not warm:
            requests.close()
            try:
                os.waitpid(child, 0)
            except ChildProcessError:
                pass  # SIGCHLD is ignored, so the kernel reaped it.
            os._exit(0)
        try:
            spares[number] = os.pidfd_open(child)
        except ProcessLookupError:
            pass  # Killed already.
        while len(spares) >= SPARE_CELLS:
            await_loss(spares, taken)
            wait_readable([taken, requests], SPARE_DELAY_MS)


def await_loss(spares, taken):
    """Waits until a spare cell takes a script or is killed. Exits when no more requests follow."""
    ready = wait_readable([taken, *spares.values()], None)
    lost = [number for number, process in spares.items() if process in ready]
    if taken in ready:
        number = int.from_bytes(os.read(taken, 8), sys.byteorder)
        if number == NO_MORE_REQUESTS:
            os._exit(0)
        lost.append(number)
    for number in lost:
        if process := spares.pop(number, None):
            os.close(process)


def wait_readable(descriptors, milliseconds):
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(milliseconds)}


def run_cell(plan, own, requests, take, number):
    """Runs in a child of the server, from its start to a script. Returns in the script's process only."""
    control = None
    try:
        # While it waits for a request, it dies with the server.
        jail.prctl(jail.PR_SET_PDEATHSIG, signal.SIGKILL)
        if own:
            if wait_readable([take], 0):
                os._exit(NOT_STARTED)  # The server had exited before.
            jail.map_nobody(jail.NOBODY, jail.NOBODY)
        if plan["namespaces"]:
            processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
            supervisor_pid = os.readlink("self", dir_fd=processes)
            jail.enter_cell(plan)
            script, waiting = fork_script()
            if script == 0:
                return become_script(plan, waiting, own)
            # A spare cell is useless without its script's process.
            signal.signal(signal.SIGCHLD, lambda *_: os._exit(NOT_STARTED))
            if own:
                rehearsal_request()  # Copies its pages in advance: see `rehearse`.
        else:
            jail.prctl(jail.PR_SET_CHILD_SUBREAPER, 1)
            processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
            supervisor_pid = os.readlink("self", dir_fd=processes)
        descriptors = await_descriptors(requests, take)
        if not descriptors:
            os.write(take, jail.encode(NO_MORE_REQUESTS))
            os._exit(0)
        control, *outputs = descriptors
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            os.write(take, jail.encode(number))
        except OSError:
            os._exit(NOT_STARTED)  # The server has exited: the runner requests another cell.
        requests.close()
        jail.prctl(jail.PR_SET_PDEATHSIG, 0)
        # So that it outlives the server. Creating a session would take far longer.
        os.setpgid(0, 0)
        request = Request(control)
        if plan["namespaces"]:
            if plan["packages"]:
                jail.choose_packages(request.packages)
        else:
            script, waiting = fork_script()
            if script == 0:
                os.close(control)
                return become_script(plan, waiting, False)
        # Before the script runs, which could otherwise read its memory.
        jail.prctl(jail.PR_SET_DUMPABLE, 0)
        try:
            request.forward(waiting, descriptors)
        except OSError:
            os._exit(NOT_STARTED)  # The script's process has exited: the runner requests another cell.
        waiting.close()
        for output in outputs:
            os.close(output)
        supervisor = Supervisor(plan, script, processes, supervisor_pid, control)
        limit = supervisor.watch()
        supervisor.kill_all()
        report(control, f"exited {supervisor.exit_code()} {limit}")
        os._exit(0)
    except BaseException as error:
        if control is None:
            control, *_ = await_descriptors(requests, take) or [0]
            os.write(take, jail.encode(number))
        fail(control, error)


def fail(control, error):
    report(control, f"failed {describe(error)}")
    os._exit(NOT_STARTED)


def describe(error):
    """Returns the step of the jail that failed, and the error."""
    step = error.__traceback__
    while step.tb_next and step.tb_next.tb_frame.f_code.co_name != "call":
        step = step.tb_next
    step = f"{step.tb_frame.f_code.co_name}, line {step.tb_lineno}"
    return f"{step}: {type(error).__name__}: {error}"


def await_descriptors(requests, take):
    """Waits for a request, for which all spare cells compete. Exits when the server has exited: the
    signal of its death is missed by a cell that the server was still creating."""
    while take not in wait_readable([requests, take], None):
        try:
            return receive_descriptors(requests, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass  # Another cell was faster.
    os._exit(NOT_STARTED)


def receive_descriptors(requests, flags=0):
    data, messages, _, _ = requests.recvmsg(1, socket.CMSG_SPACE(MAX_DESCRIPTORS * 4), flags)
    for level, kind, payload in messages:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            parts = range(0, len(payload), 4)
            return [int.from_bytes(payload[at:at + 4], sys.byteorder) for at in parts]
    return None


def report(control, line):
    try:
        os.write(control, line.replace("\n", " ").encode("utf-8", "replace") + b"\n")
    except OSError:
        pass  # The runner has exited.


def fork_script():
    """Forks the process that becomes the script; it waits at its end of a socket."""
    ours, theirs = socket.socketpair()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    return (0, theirs) if child == 0 else (child, ours)


class Request:
    """A length and NUL-separated fields, none of which contains a NUL."""

    def __init__(self, control):
        length = self.read(control, 4)
        content = self.read(control, int.from_bytes(length, "little"))
        self.frame = length + content
        fields = content.decode().split("\0")
        seconds, self.packages, self.imports, self.folder, given, self.code, self.input = fields
        self.seconds = int(seconds)
        self.has_input = given == "1"

    def forward(self, waiting, descriptors):
        rights = b"".join(jail.encode(descriptor, size=4) for descriptor in descriptors)
        waiting.sendmsg([b"s"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        waiting.sendall(self.frame)

    @staticmethod
    def read(control, length):
        parts = []
        while length:
            part = os.read(control, min(length, CONTROL_CHUNK_BYTES))
            if not part:
                os._exit(NOT_STARTED)  # Cancelled before the request was complete.
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


class Supervisor:
    """Watches a script and its descendants, which never outlive it."""

    def __init__(self, plan, child, processes, pid, control):
        self.plan = plan
        self.child = child
        self.processes = processes
        self.pid = pid
        self.control = control
        self.status = None

    def watch(self):
        """Waits until the script exits, is cancelled, or exceeds a limit; returns the limit or `-`."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN | select.POLLHUP)
        poll.register(os.pidfd_open(self.child), select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(TICK_MS)]
            self.reap()
            if self.status is not None or self.control in ready:
                return "-"
            if self.exceeds_limits():
                return "memory"

    def reap(self, options=os.WNOHANG):
        """Reaps ended children; returns `False` when none are left."""
        try:
            while True:
                pid, status = os.waitpid(-1, options)
                if pid == 0:
                    return True
                if pid == self.child:
                    self.status = status
        except ChildProcessError:
            return False

    def exceeds_limits(self):
        """Returns whether the processes together exceed a limit: their number, open files or memory."""
        found = self.descendants()
        if len(found) > self.plan["processes"]:
            return True
        live = [process for process in map(self.live_task, found) if process]
        # The content of pipes and sockets is kernel memory, which no limit counts.
        max_files = FILES_FACTOR * self.plan["open_files"]
        if len(found) > FILES_FACTOR and sum(self.open_files(path) for path, _ in live) > max_files:
            return True
        if sum(sum(sizes.values()) for _, sizes in live) <= self.plan["memory_bytes"]:
            return False
        # Shared pages were counted for each process.
        return sum(self.proportional(*process) for process in live) > self.plan["memory_bytes"]

    def live_task(self, pid):
        """Returns the path of a process below /proc, and its memory. If its first thread has ended, the
        path is that of another: the files of an ended thread show no memory and no open files."""
        for path in self.tasks(pid):
            if sizes := self.sizes(path, "status", MEMORY):
                return path, sizes
        return None

    def tasks(self, pid):
        yield pid
        yield from (f"{pid}/task/{task}" for task in self.names(pid + "/task") or ())

    def open_files(self, path):
        files = self.names(path + "/fd")
        if files is not None:
            return len(files)
        # No permission, or the process has exited: an upper bound, which is 0 after the exit.
        lines = self.text(path, "status").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("FDSize:"))

    def proportional(self, path, sizes):
        """Returns the memory of a process, with its part of the pages that it shares."""
        shares = self.sizes(path, "smaps_rollup", SHARES)
        if not shares:
            return sum(sizes.values())
        return sum(shares.values()) + sum(sizes.get(name, 0) for name in UNSHARED)

    def sizes(self, path, name, wanted):
        """Returns the wanted fields of a file of a process, in bytes."""
        lines = (line.split() for line in self.text(path, name).splitlines())
        return {line[0]: int(line[1]) * 1024 for line in lines if line and line[0] in wanted}

    def descendants(self):
        found, unseen = [], [self.pid]
        while unseen:
            pid = unseen.pop()
            for task in self.names(pid + "/task") or ():
                children = self.text(pid, f"task/{task}/children").split()
                found += children
                unseen += children
        return found

    def names(self, path):
        """Returns the names in a folder, or `None` if it can't be opened."""
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.processes)
        except OSError:
            return None
        try:
            return os.listdir(folder)
        except OSError:
            return []
        finally:
            os.close(folder)

    def text(self, path, name):
        try:
            file = os.open(f"{path}/{name}", os.O_RDONLY, dir_fd=self.processes)
        except OSError:
            return ""
        try:
            return os.read(file, 65536).decode()
        except OSError:
            return ""
        finally:
            os.close(file)

    def kill_all(self):
        if self.plan["namespaces"]:
            # All processes but this one, at once: it is the init process of a namespace.
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                pass
        else:
            stopped = set()
            while alive := set(self.descendants()) - stopped:
                self.send_signal(alive, signal.SIGSTOP)
                stopped |= alive
            self.send_signal(stopped, signal.SIGKILL)
        while self.reap(0):
            pass

    @staticmethod
    def send_signal(pids, number):
        for pid in pids:
            try:
                os.kill(int(pid), number)
            except ProcessLookupError:
                pass

    def exit_code(self):
        if self.status is None:
            return 128 + signal.SIGKILL
        code = os.waitstatus_to_exitcode(self.status)
        return code if code >= 0 else 128 - code


def become_script(plan, waiting, warm):
    """Runs in the script's process, up to its first line."""
    failure = None
    try:
        os.setsid()
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.closerange(3, waiting.fileno())
        os.closerange(waiting.fileno() + 1, 1 << 16)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if plan["namespaces"]:
            # Everything that is known in advance, before a request waits for it.
            jail.confine(plan, MAX_SECONDS, plan["readable"], ["/tmp"])
        if warm and not wait_readable([waiting], SPARE_DELAY_MS):
            rehearse(plan)
    except BaseException as error:
        failure = error
    descriptors = receive_descriptors(waiting)
    if not descriptors:
        os._exit(NOT_STARTED)
    control, *outputs = descriptors
    outputs, cgroup = outputs[:2], outputs[2:]
    try:
        if failure:
            raise failure
        for entrance in cgroup:
            os.write(entrance, b"0")
            os.close(entrance)
        script = Request(waiting.fileno())
        waiting.close()
        for number, output in enumerate(outputs, 1):
            os.dup2(output, number)
            os.close(output)
        prepare(plan, script)
    except BaseException as error:
        fail(control, error)
    report(control, "started")
    os.close(control)
    # From here on foreign code runs: packages may have code for every start.
    return script


def rehearse(plan):
    """Prepares an empty script before a request waits: a fork owns a page only after writing to it, and
    copying the pages that a start writes to takes a fourth of the time of a small script."""
    try:
        prepare(plan, rehearsal_request())
        exec(compile("", "rehearsal", "exec", dont_inherit=True), {})
    except Exception:
        pass  # If it matters, the script fails as well.
    for name in ("ROCKBOT_INPUT", "ROCKBOT_INPUT_FILE"):
        os.environ.pop(name, None)
    for name in ("script.py", "input"):
        try:
            os.remove("/tmp/" + name)
        except OSError:
            pass  # The rehearsal failed before it was written.


def rehearsal_request():
    """Returns the request of an empty script."""
    content = "\0".join([str(MAX_SECONDS), "", "", "/tmp", "1", "", "input"]).encode()
    ours, theirs = socket.socketpair()
    ours.sendall(len(content).to_bytes(4, "little") + content)
    return Request(theirs.fileno())


def prepare(plan, script):
    folder = script.folder
    os.chdir(folder)
    os.umask(0o077)
    jail.write("script.py", script.code)
    os.environ.update(HOME=folder, TMPDIR=folder, PWD=folder)
    if script.has_input:
        jail.write("input", script.input)
        os.environ["ROCKBOT_INPUT_FILE"] = folder + "/input"
        if len(script.input.encode()) <= plan["environment_bytes"]:
            os.environ["ROCKBOT_INPUT"] = script.input
    imports = [script.imports] if script.imports else []
    if plan["namespaces"]:
        jail.lower_limit(resource.RLIMIT_CPU, jail.processor_seconds(script.seconds))
    else:
        jail.confine(plan, script.seconds, plan["readable"] + imports, [folder])
