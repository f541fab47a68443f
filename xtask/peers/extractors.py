"""Extracts the main content of pages with other extractors, for `cargo xtask bench extraction`.

    python extractors.py trafilatura|mcp-server-fetch < PAGES

Reads lines of JSON with the path of a page (`html`, also of a `.gz` file) and its `url`, and prints a line
of JSON for each: the `text`, and the `seconds` of CPU time that it took, with those of child processes.
"""

import gzip
import json
import logging
import re
import resource
import sys


def trafilatura():
    import trafilatura

    return lambda html, url: trafilatura.extract(html, url=url) or ""


def mcp_server_fetch():
    from mcp_server_fetch.server import extract_content_from_html

    return lambda html, url: without_targets(extract_content_from_html(html))


def without_targets(markdown):
    """Removes images, the targets of links and the escapes of Markdown: the corpora expect plain text."""
    markdown = re.sub(r"!\[[^\]\n]*\]\([^)]*\)", " ", markdown)
    return re.sub(r"\]\([^)]*\)", " ", markdown).replace("\\", "")


def seconds():
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main(name):
    logging.disable(logging.CRITICAL)
    extract = {"trafilatura": trafilatura, "mcp-server-fetch": mcp_server_fetch}[name]()
    for line in sys.stdin:
        page = json.loads(line)
        opened = gzip.open if page["html"].endswith(".gz") else open
        with opened(page["html"], "rb") as file:
            html = file.read().decode(errors="replace")
        started = seconds()
        try:
            text = extract(html, page["url"])
        except Exception:
            text = ""
        spent = seconds() - started
        if text.startswith("<error>"):
            text = ""
        print(json.dumps({"text": text, "seconds": spent}), flush=True)


main(sys.argv[1])
