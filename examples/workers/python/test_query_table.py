"""Limits of the queries: `python3 -m unittest test_query_table`."""

import time
import unittest

import query_table


def run(sql, csv="n\n1\n", seconds=1):
    started = time.monotonic()
    return query_table.run({"csv": csv, "sql": sql}, lambda: time.monotonic() - started > seconds)


class Limits(unittest.TestCase):
    def test_like_ends_in_time_for_any_pattern(self):
        pattern = "%a" * 60 + "%b"
        started = time.monotonic()
        result = run(f"SELECT count(*) FROM data WHERE n LIKE '{pattern}'", "n\n" + "a" * 90_000)
        self.assertEqual(result, ("count(*)\n0\n", False))
        self.assertLess(time.monotonic() - started, 5)

    def test_like_matches_as_that_of_sqlite(self):
        for pattern, text, expected in [
            ("%bc", "abc", 1), ("a%c", "abbc", 1), ("a%a", "a", 0), ("_B_", "abc", 1), ("", "", 1),
            ("%", "", 1), ("a.c", "abc", 0), ("%a%b%", "xbxa", 0), ("É", "é", 0),
        ]:
            result = run(f"SELECT '{text}' LIKE '{pattern}' AS matches")
            self.assertEqual(result, (f"matches\n{expected}\n", False), (pattern, text))

    def test_values_are_bounded(self):
        for sql in ["SELECT zeroblob(900000000)", "SELECT hex(zeroblob(90000))"]:
            self.assertEqual(run(sql), ("the query failed: string or blob too big", True))

    def test_functions_without_limit_are_refused(self):
        for sql in ["SELECT 'a' GLOB 'a*'", "SELECT glob('a', 'a')", "SELECT 'a' LIKE 'a' ESCAPE 'b'"]:
            text, failed = run(sql)
            self.assertTrue(failed, text)

    def test_endless_query_is_stopped(self):
        sql = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"
        self.assertEqual(run(sql, seconds=0.2), ("the query failed: interrupted", True))


if __name__ == "__main__":
    unittest.main()
