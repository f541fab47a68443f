"""The tool `query_table`: runs a SQL query over a CSV text, in memory."""

import csv
import io
import sqlite3

MAX_RESULT = 1 << 20
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
ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


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


def query(database, table, sql, is_stopped):
    # The query is untrusted: it may only read, and all queries together use at most 256 MiB.
    database.execute("PRAGMA hard_heap_limit = 268435456")
    rows = csv.reader(io.StringIO(table))
    columns = next(rows, ["empty"])
    names = ", ".join('"' + column.replace('"', '""') + '" NUMERIC' for column in columns)
    database.execute(f"CREATE TABLE data ({names})")
    width = len(columns)
    padded = ((row + [None] * width)[:width] for row in rows if row)
    database.executemany(f"INSERT INTO data VALUES ({', '.join('?' * width)})", padded)
    database.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in ALLOWED else sqlite3.SQLITE_DENY)
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
