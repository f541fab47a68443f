"""From the start of the interpreter to the end of a script.

Everything of ours is out of the script's sight by its first line: it is `__main__`, with its own
folder in front of `sys.path`, whether the interpreter was warm or cold.
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
    for module in (jail, plan, server, sys.modules[__name__]):
        del sys.modules[module.__name__]
    run(script.code, script.folder, script.imports)


def run(code, folder, imports):
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
        exec(jail.compiled(code, script.__file__), script.__dict__)
        status = 0
    except SystemExit as ending:
        status = exit_status(ending.code)
    except BaseException as error:
        # From the script's own first line on.
        traceback = error.__traceback__
        while traceback and traceback.tb_frame.f_globals is not script.__dict__:
            traceback = traceback.tb_next
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
    finally:
        finish(status)


def exit_status(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def finish(status):
    """What the interpreter does at its end and a script can notice."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:
        status = status or 1
        sys.__excepthook__(type(error), error, None)
    finally:
        os._exit(status)
