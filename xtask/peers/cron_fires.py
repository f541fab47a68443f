"""Computes fires of cron expressions with libraries of PyPI.

Each line of standard input is a JSON object with `library` ("cronsim" or "croniter"), `cron`, `zone`,
`start` in Unix seconds and `count`. The answer is a line with a JSON list of Unix seconds: empty if the
expression never comes true, `null` if the library rejects it.
"""

import datetime
import json
import sys
import zoneinfo

import croniter
import cronsim


def fires(request):
    zone = zoneinfo.ZoneInfo(request["zone"])
    start = datetime.datetime.fromtimestamp(request["start"], datetime.timezone.utc).astimezone(zone)
    try:
        if request["library"] == "cronsim":
            return [int(next(found).timestamp()) for found in [cronsim.CronSim(request["cron"], start)]
                    for _ in range(request["count"])]
        found = croniter.croniter(request["cron"], start, second_at_beginning=True)
        return [int(found.get_next(float)) for _ in range(request["count"])]
    except (cronsim.CronSimError, croniter.CroniterBadCronError):
        return None
    except (StopIteration, croniter.CroniterBadDateError):
        return []


for line in sys.stdin:
    print(json.dumps(fires(json.loads(line))), flush=True)
