"""From the start of the interpreter to the end of a script.

Nothing of ours is in the script's way by its first line: it is `__main__`, with its own folder in
front of `sys.path`, whether the interpreter was warm or cold.
"""

import atexit
import builtins
import os
import sys
import _sitebuiltins

import jail
import plan
import server

PRELOADED = "collections", "datetime", "functools", "itertools", "json", "math", "re", "select"

# The exit code of Python where what was written can't go out.
UNFLUSHED = 120


def main(mode):
    warm = mode == "warm"
    if warm:
        import gc

        for module in PRELOADED:
            __import__(module)
        # For scripts that compile: the first one makes the types of syntax trees.
        compile("", "", "exec")
        gc.freeze()
    script = server.serve(plan.PLAN, warm)
    compiled = jail.compiled
    for name in ("jail", "plan", "server"):
        del sys.modules[name], globals()[name]
    del sys.modules[__name__]
    run(compiled, script.code, script.folder, script.imports)


def run(compiled, code, folder, imports):
    script = type(sys)("__main__")
    script.__file__ = folder + "/script.py"
    script.__builtins__ = builtins
    sys.modules["__main__"] = script
    sys.argv = ["script.py"]
    sys.path[0] = folder
    # Those that `site` adds, which does not run here.
    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
    status = 1
    try:
        if imports:
            import site

            site.addsitedir(imports)
        exec(compiled(code, script.__file__), script.__dict__)
        status = 0
    except SystemExit as ending:
        status = exit_status(ending.code)
    except BaseException as error:
        # From the script's own first line on.
        traceback = error.__traceback__
        while traceback and traceback.tb_frame.f_globals is not script.__dict__:
            traceback = traceback.tb_next
        show(error.with_traceback(traceback))
    finally:
        finish(status)


def exit_status(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def show(error):
    told = type(error), error, error.__traceback__
    try:
        sys.excepthook(*told)
    except BaseException:
        # What the script has put in its place does not work.
        sys.__excepthook__(*told)


def finish(status):
    """What the interpreter does at its end and a script can notice."""
    for step in (end_threads, atexit._run_exitfuncs):
        try:
            step()
        except BaseException:
            pass  # It has been shown.
    try:
        flushed = [flush(stream) for stream in (sys.stdout, sys.stderr)]
        status = status or (0 if all(flushed) else UNFLUSHED)
        # What was written before the script put something else in their place, which may have taken
        # them apart.
        for stream in (sys.__stdout__, sys.__stderr__):
            flush(stream, quietly=True)
    finally:
        os._exit(status)


def end_threads():
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()


def flush(stream, quietly=False):
    """Whether all that was written there went out."""
    try:
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()
        return True
    except BaseException as error:
        if not quietly:
            sys.__excepthook__(type(error), error.with_traceback(None), None)
        return False
