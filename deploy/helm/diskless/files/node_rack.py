"""Writes a broker's properties with its rack, which is a label of the node that its pod runs on.

`node_rack.py FROM TO` copies a properties file and adds `broker.rack`. The Kubernetes API is asked for the node
NODE_NAME; NODE_LABEL names the label. A node without it ends the start of the pod: a broker of the wrong rack would
have its clients' traffic cross zones without anybody noticing.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.request
from pathlib import Path

ACCOUNT = Path(os.environ.get("SERVICE_ACCOUNT_FOLDER", "/var/run/secrets/kubernetes.io/serviceaccount"))
TIMEOUT_S = 30.0

source, target = map(Path, sys.argv[1:])
node, label = os.environ["NODE_NAME"], os.environ["NODE_LABEL"]
host = os.environ["KUBERNETES_SERVICE_HOST"]
address = f"[{host}]" if ":" in host else host
request = urllib.request.Request(
    f"https://{address}:{os.environ['KUBERNETES_SERVICE_PORT']}/api/v1/nodes/{node}",
    headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}"},
)
trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
try:
    with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trusted) as answer:  # noqa: S310
        labels = json.load(answer)["metadata"].get("labels", {})
except OSError as error:
    sys.exit(f"the rack cannot be read from the node {node}: {error}")
if label not in labels:
    sys.exit(f"the node {node} has no label {label}: label it, or set rack.label or rack.from to something else")
target.write_text(f"{source.read_text().rstrip()}\nbroker.rack={labels[label]}\n")
print(f"broker.rack={labels[label]}")
