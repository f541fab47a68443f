"""Installs a package set into its folder of the volume, from wheels only.

Arguments: the name of the set, the number of sets to keep, the package index, and seconds. The packages
are lines of a file. No code of a package runs. Exits with 0 if the set is complete, with 3 if the packages
can't be installed, and with 4 if the volume or the installer can't be used; the termination message has
the cause.
"""
import os, shutil, subprocess, sys, tempfile, time

ROOT, LIST, TERMINATION_LOG = "/packages", "/rockbot/requirements.txt", "/dev/termination-log"
UNFINISHED, MAX_MESSAGE = "unfinished-", 2000
SET, KEEP, INDEX, SECONDS = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
# Sets that may be in use, and installations that may be running, are not removed.
SET_SECONDS, UNFINISHED_SECONDS = 24 * 60 * 60, 60 * 60
FAILED, UNUSABLE = 3, 4


def fail(code, text):
    with open(TERMINATION_LOG, "w", encoding="utf-8") as file:
        file.write(text.strip()[-MAX_MESSAGE:])
    sys.exit(code)


def remove_old():
    """Removes abandoned installations, and the oldest sets beyond the limit."""
    now, sets = time.time(), []
    for entry in os.scandir(ROOT):
        age = now - entry.stat(follow_symlinks=False).st_mtime
        if entry.name.startswith(UNFINISHED):
            if age > UNFINISHED_SECONDS:
                shutil.rmtree(entry.path, ignore_errors=True)
        elif len(entry.name) == len(SET) and entry.is_dir(follow_symlinks=False):
            sets.append((age, entry.path))
    for age, path in sorted(sets)[KEEP:]:
        if age > SET_SECONDS:
            # First renamed, so that a set is complete or absent.
            gone = tempfile.mkdtemp(prefix=UNFINISHED, dir=ROOT)
            os.rename(path, gone + "/set")
            shutil.rmtree(gone, ignore_errors=True)


def install(folder):
    command = [sys.executable, "-I", "-m", "pip", "install", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--no-color", "--quiet", "--no-cache-dir"]
    command += ["--index-url", INDEX, "--target", folder + "/set", "--requirement", LIST]
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
        fail(FAILED, done.stdout.decode("utf-8", "replace"))


def main():
    os.umask(0o022)
    target = os.path.join(ROOT, SET)
    if not os.path.isdir(target):
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
    os.utime(target)
    try:
        remove_old()
    except OSError:
        # Another installation removes the same; the next one removes the rest.
        pass


try:
    main()
except OSError as error:
    fail(UNUSABLE, str(error))
