"""The tool `query_table`: runs a SQL query over a CSV text, in memory."""

import csv
import functools
import io
import re
import sqlite3

MAX_RESULT = 1 << 20
MAX_VALUE, MAX_PATTERN = 100_000, 200  # bytes of a value or row, characters of a pattern of LIKE
TEXT_LIMITS = {"csv": 900_000, "sql": 10_000}
REGISTRATION = {
    "name": "query_table",
    "label": "Query a table",
    "description": "Run one SELECT statement of SQLite over a CSV text and return the rows as CSV. "
    "The first line of the text names the columns of the table `data`.",
    "parameters": {
        "type": "object",
        "properties": {name: {"type": "string", "maxLength": limit} for name, limit in TEXT_LIMITS.items()},
        "required": list(TEXT_LIMITS),
        "additionalProperties": False,
    },
    "source": "tables",
    "hints": {"readOnly": True, "destructive": False, "idempotent": True, "openWorld": False},
}
INSTRUCTIONS = [{"source": "tables", "text": "Use query_table for sums, counts and filters over tables; do not compute them."}]
GUIDE = """# Tables

`query_table` answers questions about a table that you have as CSV text, in one call.

1. Pass the whole CSV text, with the line of column names. The table is called `data`.
2. Values that look like numbers are numbers, others are texts.
3. Select only what you need; a result has at most 1 MiB.
"""
GUIDES = [{"source": "tables", "name": "tables", "summary": "Queries over tables in CSV", "markdown": GUIDE}]
ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}


def validate(arguments):
    """Raises `ValueError` unless `arguments` match the schema of the tool."""
    if not isinstance(arguments, dict) or arguments.keys() != TEXT_LIMITS.keys():
        raise ValueError("expected an object with the fields csv and sql")
    for name, limit in TEXT_LIMITS.items():
        if not isinstance(arguments[name], str) or len(arguments[name]) > limit:
            raise ValueError(f"{name}: expected a text of at most {limit} characters")


def run(arguments, is_stopped):
    """Returns the rows as CSV, and whether the query failed.

    `is_stopped` is called many times per second; the query ends when it returns true.
    """
    database = sqlite3.connect(":memory:")
    try:
        return query(database, arguments["csv"], arguments["sql"], is_stopped), False
    except (sqlite3.Error, sqlite3.Warning, csv.Error) as problem:
        return f"the query failed: {problem}", True
    except MemoryError:
        return "the query failed: it needs over 256 MiB of memory", True
    finally:
        database.close()


def authorize(action, _table, name, *_):
    # GLOB has no limit on its time.
    is_function = action == sqlite3.SQLITE_FUNCTION and name.lower() != "glob"
    return sqlite3.SQLITE_OK if action in ALLOWED or is_function else sqlite3.SQLITE_DENY


@functools.lru_cache(maxsize=32)
def parts(pattern):
    """Returns the texts between the `%` of a LIKE pattern, as expressions without repetitions, with their lengths."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError("the pattern is too long")
    flags = re.DOTALL | re.IGNORECASE | re.ASCII
    return [(re.compile(re.escape(text).replace("_", "."), flags), len(text)) for text in pattern.split("%")]


def like(pattern, text):
    """LIKE in time that is proportional to the text: SQLite's own takes hours and cannot be stopped."""
    if pattern is None or text is None:
        return None
    text = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    (first, end), *others = parts(str(pattern))
    if not others:
        return first.fullmatch(text) is not None
    if not first.match(text):
        return False
    last, length = others.pop()
    for part, _ in others:
        if not (found := part.search(text, end)):
            return False
        end = found.end()
    start = len(text) - length
    return start >= end and last.fullmatch(text, start) is not None


def like_escape(*_):
    raise ValueError("ESCAPE is not supported")


def query(database, table, sql, is_stopped):
    # The query is untrusted: it may only read, and all queries together use at most 256 MiB. Steps are
    # checked; so that a single step is short, values are, and LIKE is our own.
    database.execute("PRAGMA hard_heap_limit = 268435456")
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
    database.create_function("like", 2, like, deterministic=True)
    database.create_function("like", 3, like_escape, deterministic=True)
    rows = csv.reader(io.StringIO(table))
    columns = next(rows, ["empty"])
    names = ", ".join('"' + column.replace('"', '""') + '" NUMERIC' for column in columns)
    database.execute(f"CREATE TABLE data ({names})")
    width = len(columns)
    padded = ((row + [None] * width)[:width] for row in rows if row)
    database.executemany(f"INSERT INTO data VALUES ({', '.join('?' * width)})", padded)
    database.set_authorizer(authorize)
    database.set_progress_handler(is_stopped, 10_000)
    text = io.StringIO()
    output = csv.writer(text, lineterminator="\n")
    cursor = database.execute(sql)
    output.writerow(column for column, *_ in cursor.description or ())
    for row in cursor:
        output.writerow(row)
        if text.tell() > MAX_RESULT:
            break
    result = text.getvalue().encode(errors="replace")
    cut = result[:MAX_RESULT].decode(errors="ignore")
    return cut if len(result) <= MAX_RESULT else cut + "\n[result truncated at 1 MiB; select fewer rows]"
