"""Runs a script, from the start of the interpreter to its exit.

At its first line, a script sees an ordinary interpreter, warm or cold: it is `__main__`, and its own
folder is the first in `sys.path`.
"""

import atexit
import builtins
import os
import sys
import types

import jail
import plan
import server

PRELOADED = "collections", "datetime", "functools", "itertools", "json", "math", "re", "select"

# The exit code of Python if output could not be flushed.
UNFLUSHED = 120


def main(mode):
    warm = mode == "warm"
    if warm:
        import gc

        for module in PRELOADED:
            __import__(module)
        # The first call creates the types of syntax trees, which takes longer than a small script.
        compile("", "", "exec")
        gc.freeze()
    script = server.serve(plan.PLAN, warm)
    for name in ("jail", "plan", "server"):
        del sys.modules[name], globals()[name]
    del sys.modules[__name__]
    run(script.code, script.folder, script.imports)


def run(code, folder, imports):
    script = types.ModuleType("__main__")
    script.__file__ = folder + "/script.py"
    script.__builtins__ = builtins
    sys.modules["__main__"] = script
    sys.argv = ["script.py"]
    sys.path[0] = folder
    # The module `site`, which does not run here, would add both.
    builtins.exit = builtins.quit = exit
    status = 1
    # Registered first, so it runs last: after the script's threads and its own functions.
    atexit.register(lambda: leave(status))
    try:
        if imports:
            import site

            site.addsitedir(imports)
        exec(compile(code, script.__file__, "exec", dont_inherit=True), script.__dict__)
        status = 0
    except SystemExit as raised:
        status = exit_status(raised.code)
    except BaseException as error:
        # Without the frames above the script's own.
        traceback = error.__traceback__
        while traceback and traceback.tb_frame.f_globals is not script.__dict__:
            traceback = traceback.tb_next
        show(error.with_traceback(traceback))
    raise SystemExit(status)


def exit(code=None):
    raise SystemExit(code)


def exit_status(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def show(error):
    raised = type(error), error, error.__traceback__
    try:
        sys.excepthook(*raised)
    except BaseException:
        # The script's own hook does not work.
        sys.__excepthook__(*raised)


def leave(status):
    """Flushes and exits. The rest of the interpreter's shutdown takes time and changes nothing."""
    try:
        flushed = [flush(stream) for stream in (sys.stdout, sys.stderr)]
        status = status or (0 if all(flushed) else UNFLUSHED)
        # Output written before the script replaced the streams, which it may have detached.
        for stream in (sys.__stdout__, sys.__stderr__):
            flush(stream, quietly=True)
    finally:
        os._exit(status)


def flush(stream, quietly=False):
    """Returns whether all output was flushed."""
    try:
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()
        return True
    except BaseException as error:
        if not quietly:
            sys.__excepthook__(type(error), error.with_traceback(None), None)
        return False
