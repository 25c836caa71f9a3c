"""The container's health check: whether the broker in it can serve clients, with the reasons where it cannot.

It asks `GET /health` at the port of `admin.listener`, where that is set by its variable, or else at 9644.
"""

from __future__ import annotations

import http.client
import os
import sys

LISTENER = os.environ.get("DISKLESS_CONFIG_ADMIN_LISTENER", "http://0.0.0.0:9644")
TIMEOUT_S = 4.0

connection = http.client.HTTPConnection("127.0.0.1", int(LISTENER.rpartition(":")[2]), timeout=TIMEOUT_S)
try:
    connection.request("GET", "/health")
    answer = connection.getresponse()
    print(answer.status, answer.read().decode())
except (OSError, http.client.HTTPException) as error:
    sys.exit(f"the broker does not answer: {error}")
finally:
    connection.close()
sys.exit(answer.status != http.HTTPStatus.OK)
