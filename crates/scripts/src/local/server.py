"""Turns requests into scripts: one that stays warm and forks, or one for a single script.

A request is one byte with three descriptors over the socket at standard input: the script's
conversation, its stdout and its stderr. Three processes come of it:

- this server, which reads nothing: it only makes cells, some of them in advance;
- a keeper, the first process of a cell: takes a request, watches the script, ends it, tells;
- the script.

The conversation is also the lifeline: when its other end closes, the keeper ends the script.
"""

import os
import sys

# `signal` brings half of the standard library with it.
import _signal as signal
import _socket

import jail

CONVERSATION_BYTES = 64 * 1024
TICK_MS = 50
PAGE = os.sysconf("SC_PAGE_SIZE")
# All processes of a script together have at most so many times the open files of one.
FILES_TOGETHER = 4
# Cells that are ready before anybody asks.
SPARES = 2
# A script goes first: so long nothing is made in place of the cell that it took, unless another
# one comes.
LEAVE_ALONE_MS = 10
# The longest time-out of a script.
MOST_SECONDS = 300
# The exit code of a process that did not become a script.
UNSTARTED = 125
# What a keeper says to the server in place of its cell's number.
ASKED_NO_MORE = 0


def serve(plan, warm):
    """Returns in the process that is to become a script, with what that needs."""
    requests = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for keepers: they tell themselves.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jail.prctl(jail.PR_SET_CHILD_SUBREAPER, 1)
    plan = jail.prepared(plan)
    if plan["namespaces"]:
        try:
            jail.enter_walls(plan, 0 if warm else jail.NEW_PID)
        except OSError as error:
            sys.exit(described(error))
    else:
        # So that no script of the same user reads its memory.
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
            script = attend(plan, own, requests, take, number)
            # Its descriptor is by now the script's standard input, and stays open.
            requests.detach()
            return script
        if not warm:
            requests.close()
            try:
                os.waitpid(child, 0)
            except ChildProcessError:
                pass  # As it is without anybody who waits.
            os._exit(0)
        try:
            spares[number] = os.pidfd_open(child)
        except ProcessLookupError:
            pass  # Killed already.
        while len(spares) >= SPARES:
            lose_one(spares, taken)
            wait_for([taken, requests], LEAVE_ALONE_MS)


def lose_one(spares, taken):
    """Waits until a cell has a script, or was killed before it had one. Ends when nobody asks."""
    ready = {descriptor for descriptor, _ in wait_for([taken, *spares.values()], None)}
    lost = [number for number, process in spares.items() if process in ready]
    if taken in ready:
        number = int.from_bytes(os.read(taken, 8), sys.byteorder)
        if number == ASKED_NO_MORE:
            os._exit(0)
        lost.append(number)
    for number in lost:
        if process := spares.pop(number, None):
            os.close(process)


def wait_for(descriptors, milliseconds):
    import select

    any_of = select.poll()
    for descriptor in descriptors:
        any_of.register(descriptor, select.POLLIN)
    return any_of.poll(milliseconds)


def attend(plan, own, requests, take, number):
    """The way from a child of the server to a script. Every process but the script ends in here."""
    conversation = None
    try:
        # Until it has something to do, it goes with the server.
        jail.prctl(jail.PR_SET_PDEATHSIG, signal.SIGKILL)
        if own:
            if wait_for([take], 0):
                os._exit(UNSTARTED)  # The server had ended before that.
            jail.map_nobody(jail.NOBODY, jail.NOBODY)
        if plan["namespaces"]:
            processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
            myself = os.readlink("self", dir_fd=processes)
            jail.enter_cell(plan)
            script, waiting = fork_script(plan)
            if script == 0:
                return become(plan, waiting, own)
            # A spare without its script's process is none.
            signal.signal(signal.SIGCHLD, lambda *_: os._exit(UNSTARTED))
            if own:
                rehearsal()  # Its pages too: see `rehearse`.
        else:
            jail.prctl(jail.PR_SET_CHILD_SUBREAPER, 1)
            processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
            myself = os.readlink("self", dir_fd=processes)
        descriptors = receive(requests)
        if not descriptors:
            os.write(take, jail.words(ASKED_NO_MORE))
            os._exit(0)
        conversation, *outputs = descriptors
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            os.write(take, jail.words(number))
        except OSError:
            os._exit(UNSTARTED)  # The server has ended: another one shall be asked.
        requests.close()
        jail.prctl(jail.PR_SET_PDEATHSIG, 0)
        # The server's end is not the keeper's. A session of its own would take far longer to make.
        os.setpgid(0, 0)
        request = Request(conversation)
        if plan["namespaces"]:
            if plan["packages"]:
                jail.choose_packages(request.packages)
        else:
            script, waiting = fork_script(plan)
            if script == 0:
                os.close(conversation)
                return become(plan, waiting, False)
        # Before there is anybody who could read its memory.
        jail.prctl(jail.PR_SET_DUMPABLE, 0)
        try:
            request.hand_over(waiting, descriptors)
        except OSError:
            os._exit(UNSTARTED)  # Nobody is there who could begin: another one shall be asked.
        waiting.close()
        for output in outputs:
            os.close(output)
        keep(plan, script, processes, myself, conversation)
        os._exit(0)
    except BaseException as error:
        if conversation is None:
            conversation, *_ = receive(requests) or [0]
            os.write(take, jail.words(number))
        fail(conversation, error)


def fail(conversation, error):
    tell(conversation, f"failed {described(error)}")
    os._exit(UNSTARTED)


def described(error):
    """What went wrong, and at which step of ours."""
    step = error.__traceback__
    while step.tb_next and step.tb_next.tb_frame.f_code.co_name != "call":
        step = step.tb_next
    step = f"{step.tb_frame.f_code.co_name}, line {step.tb_lineno}"
    return f"{step}: {type(error).__name__}: {error}"


def receive(requests):
    room = _socket.CMSG_SPACE(3 * 4)
    data, messages, _, _ = requests.recvmsg(1, room)
    for level, kind, payload in messages:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            return [int.from_bytes(payload[at:at + 4], sys.byteorder) for at in (0, 4, 8)]
    return None


def tell(conversation, line):
    try:
        os.write(conversation, line.replace("\n", " ").encode("utf-8", "replace") + b"\n")
    except OSError:
        pass  # Nobody listens any more.


def fork_script(plan):
    """The process that is to become the script; it waits for that at its end of a socket."""
    ours, theirs = _socket.socketpair()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    return (0, theirs) if child == 0 else (child, ours)


def keep(plan, child, processes, myself, conversation):
    keeper = Keeper(plan, child, processes, myself, conversation)
    limit = keeper.watch()
    keeper.end_all()
    tell(conversation, f"ended {keeper.exit_code()} {limit}")


class Request:
    """A length, and as many bytes: fields with a NUL between them, which none can hold."""

    def __init__(self, conversation):
        length = self.read(conversation, 4)
        content = self.read(conversation, int.from_bytes(length, "little"))
        self.frame = length + content
        fields = content.decode().split("\0")
        seconds, self.packages, self.imports, self.folder, given, self.code, self.input = fields
        self.seconds = int(seconds)
        self.has_input = given == "1"

    def hand_over(self, waiting, descriptors):
        rights = b"".join(jail.words(descriptor, size=4) for descriptor in descriptors)
        waiting.sendmsg([b"s"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        waiting.sendall(self.frame)

    @staticmethod
    def read(conversation, length):
        parts = []
        while length:
            part = os.read(conversation, min(length, CONVERSATION_BYTES))
            if not part:
                os._exit(UNSTARTED)  # Given up before it was told.
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


class Keeper:
    """Watches a script and all that it started; nothing of it outlives the keeper."""

    def __init__(self, plan, child, processes, myself, conversation):
        self.plan = plan
        self.child = child
        self.processes = processes
        self.myself = myself
        self.conversation = conversation
        self.status = None

    def watch(self):
        """Until the script has ended, or has to: with the limit that it broke."""
        import select

        events = select.poll()
        events.register(self.conversation, select.POLLIN | select.POLLHUP)
        events.register(os.pidfd_open(self.child), select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in events.poll(TICK_MS)]
            self.reap()
            if self.status is not None or self.conversation in ready:
                return "-"
            if self.too_large():
                return "memory"

    def reap(self, options=os.WNOHANG):
        """Takes the ended children; `False` when there are none left at all."""
        try:
            while True:
                pid, status = os.waitpid(-1, options)
                if pid == 0:
                    return True
                if pid == self.child:
                    self.status = status
        except ChildProcessError:
            return False

    def too_large(self):
        """More memory, or more processes, than all of a script may have."""
        found = self.descendants()
        if len(found) > self.plan["processes"]:
            return True
        # What fills pipes and sockets is the kernel's memory, and counted nowhere.
        most = FILES_TOGETHER * self.plan["open_files"]
        if len(found) > FILES_TOGETHER and sum(self.open_files(pid) for pid in found) > most:
            return True
        resident = sum(self.number(pid, "statm", 1) * PAGE for pid in found)
        if resident <= self.plan["memory_bytes"]:
            return False
        # Pages that several have in common were counted for each of them.
        return sum(self.share(pid) for pid in found) > self.plan["memory_bytes"]

    def open_files(self, pid):
        try:
            folder = os.open(pid + "/fd", os.O_RDONLY, dir_fd=self.processes)
        except OSError:
            # Not ours to list, or gone. This is no less, and nothing where it is gone.
            lines = self.text(pid, "status").splitlines()
            return sum(int(line.split()[1]) for line in lines if line.startswith("FDSize:"))
        try:
            return len(os.listdir(folder))
        except OSError:
            return 0
        finally:
            os.close(folder)

    def share(self, pid):
        for line in self.text(pid, "smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        return self.number(pid, "statm", 1) * PAGE

    def descendants(self):
        found, unseen = [], [self.myself]
        while unseen:
            pid = unseen.pop()
            try:
                tasks = os.open(pid + "/task", os.O_RDONLY, dir_fd=self.processes)
            except OSError:
                continue
            for task in os.listdir(tasks):
                children = self.text(pid, f"task/{task}/children").split()
                found += children
                unseen += children
            os.close(tasks)
        return found

    def text(self, pid, name):
        try:
            file = os.open(f"{pid}/{name}", os.O_RDONLY, dir_fd=self.processes)
        except OSError:
            return ""
        try:
            return os.read(file, 65536).decode()
        except OSError:
            return ""
        finally:
            os.close(file)

    def number(self, pid, name, field):
        fields = self.text(pid, name).split()
        return int(fields[field]) if len(fields) > field else 0

    def end_all(self):
        if self.plan["namespaces"]:
            # All but ourselves, at once: the first process of a namespace is its init.
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                pass
        else:
            stopped = set()
            while alive := set(self.descendants()) - stopped:
                self.signal(alive, signal.SIGSTOP)
                stopped |= alive
            self.signal(stopped, signal.SIGKILL)
        while self.reap(0):
            pass

    @staticmethod
    def signal(pids, number):
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


def become(plan, waiting, warm):
    """In the process of the script: everything up to its first line."""
    failure = None
    try:
        os.setsid()
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.closerange(3, waiting.fileno())
        os.closerange(waiting.fileno() + 1, 1 << 16)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if plan["namespaces"]:
            # All that is known already, before anybody waits for it.
            jail.confine(plan, MOST_SECONDS, plan["readable"], ["/tmp"])
        if warm and not wait_for([waiting], LEAVE_ALONE_MS):
            rehearse(plan)
    except BaseException as error:
        failure = error
    descriptors = receive(waiting)
    if not descriptors:
        os._exit(UNSTARTED)
    conversation, *outputs = descriptors
    try:
        if failure:
            raise failure
        script = Request(waiting.fileno())
        waiting.close()
        for number, output in enumerate(outputs, 1):
            os.dup2(output, number)
            os.close(output)
        prepare(plan, script)
    except BaseException as error:
        fail(conversation, error)
    tell(conversation, "started")
    os.close(conversation)
    # From here on code runs that is not ours: packages may have some for every start.
    return script


def rehearse(plan):
    """Goes the way to a first line before anybody waits for it: a fork owns a page only once it has
    written to it, and to copy those of this way takes a fourth of the time of a small script."""
    try:
        prepare(plan, rehearsal())
        exec(jail.compiled("", "rehearsal"), {})
    except Exception:
        pass  # Whether the script fares better is going to be seen.
    for name in ("ROCKBOT_INPUT", "ROCKBOT_INPUT_FILE"):
        os.environ.pop(name, None)
    for name in ("script.py", "input"):
        try:
            os.remove("/tmp/" + name)
        except OSError:
            pass  # It did not get there.


def rehearsal():
    """A request that asks for nothing."""
    content = "\0".join([str(MOST_SECONDS), "", "", "/tmp", "1", "", "input"]).encode()
    ours, theirs = _socket.socketpair()
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
        jail.lower(jail.RLIMIT_CPU, jail.processor_seconds(script.seconds))
    else:
        jail.confine(plan, script.seconds, plan["readable"] + imports, [folder])
