"""Installs a package set into its folder of the volume, from wheels only.

Arguments: the name of the set, the number of sets to keep, the package index, and seconds. The packages
are lines of a file. No code of a package runs. Exits with 0 if the set is complete, with 3 if the packages
can't be installed, and with 4 if the volume or the installer can't be used; the termination message has
the cause.
"""
import errno, os, shutil, subprocess, sys, tempfile, time, urllib.parse

ROOT, LIST, TERMINATION_LOG = "/packages", "/rockbot/requirements.txt", "/dev/termination-log"
UNFINISHED, MAX_MESSAGE = "unfinished-", 2000
SET, KEEP, INDEX, SECONDS = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
# Sets that may be in use, and installations that may be running, are not removed.
SET_SECONDS, UNFINISHED_SECONDS = 24 * 60 * 60, 60 * 60
FAILED, UNUSABLE = 3, 4
# Below this share of free space, old sets are removed even within the limit.
MIN_FREE, MAX_ATTEMPTS = 0.1, 3
NO_SPACE = ["[Errno %d]" % code for code in (errno.ENOSPC, errno.EDQUOT)]


def fail(code, text):
    with open(TERMINATION_LOG, "w", encoding="utf-8") as file:
        file.write(text.strip()[-MAX_MESSAGE:])
    sys.exit(code)


def is_full():
    volume = os.statvfs(ROOT)
    return volume.f_bavail < MIN_FREE * volume.f_blocks


def remove(path):
    """Removes a set, unless it was used meanwhile. First it is renamed, so that a set is complete or absent."""
    gone = os.path.join(ROOT, "%s%s-%d" % (UNFINISHED, os.path.basename(path), time.time_ns()))
    os.rename(path, gone)
    if time.time() - os.stat(gone).st_mtime < SET_SECONDS:
        os.rename(gone, path)
    else:
        shutil.rmtree(gone, ignore_errors=True)


def remove_old():
    """Removes abandoned installations, and the oldest sets beyond the limit or without free space."""
    now, sets = time.time(), []
    for entry in os.scandir(ROOT):
        age = now - entry.stat(follow_symlinks=False).st_mtime
        if entry.name.startswith(UNFINISHED):
            if age > UNFINISHED_SECONDS:
                shutil.rmtree(entry.path, ignore_errors=True)
        elif len(entry.name) == len(SET) and entry.is_dir(follow_symlinks=False):
            sets.append((age, entry.path))
    sets.sort()
    while sets and sets[-1][0] > SET_SECONDS and (len(sets) > KEEP or is_full()):
        remove(sets.pop()[1])


def try_remove_old():
    try:
        remove_old()
    except OSError:
        # Another installation removes the same; the next one removes the rest.
        pass


def install(folder):
    command = [sys.executable, "-I", "-m", "pip", "install", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--no-color", "--quiet", "--no-cache-dir"]
    command += ["--index-url", INDEX, "--target", folder + "/set", "--requirement", LIST]
    address = urllib.parse.urlsplit(INDEX)
    if address.scheme == "http":
        # pip ignores an index without TLS on another machine unless it is named. The operator chose this one.
        command += ["--trusted-host", address.netloc.rpartition("@")[2]]
    # Archives are unpacked on the volume: /tmp is small.
    environment = {**os.environ, "TMPDIR": folder}
    try:
        done = subprocess.run(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        fail(UNUSABLE, "the installation took longer than %d s" % SECONDS)
    if done.returncode != 0:
        text = done.stdout.decode("utf-8", "replace")
        fail(UNUSABLE if any(code in text for code in NO_SPACE) else FAILED, text)


def provide(target):
    """Installs the set."""
    folder = tempfile.mkdtemp(prefix=UNFINISHED, dir=ROOT)
    try:
        install(folder)
        # Scripts run as other users.
        os.chmod(folder + "/set", 0o755)
        try:
            os.rename(folder + "/set", target)
        except OSError:
            # Another installation of the set was faster.
            if not os.path.isdir(target):
                raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    os.umask(0o022)
    target = os.path.join(ROOT, SET)
    for attempt in range(MAX_ATTEMPTS):
        try:
            os.utime(target)
            break
        except FileNotFoundError:
            # It is missing, or was just removed by another installation.
            if attempt == MAX_ATTEMPTS - 1:
                raise
        try_remove_old()
        provide(target)
    try_remove_old()


try:
    main()
except OSError as error:
    fail(UNUSABLE, str(error))
