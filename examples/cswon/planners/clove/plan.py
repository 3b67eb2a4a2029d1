"""A planner: reads the package on stdin, prints a plan. It takes the bad line, and declares a retry for it."""

import json
import sys

package = json.load(sys.stdin)
library, writer = package["services"].get("library", {}), package["services"]["writer"]
nodes, edges = [], []


def step(service, action, **params):
    name = action
    if service == "writer":
        params["line"] = "bad"
    if nodes:
        edges.append([nodes[-1]["id"], name])
    nodes.append({"id": name, "service": service, "action": action, "params": params})


if "find" in library:
    step("library", "find", text="${task.input.question}")
    step("writer", "answer", passages="${find.output.passages}")
elif "rows" in library:
    step("library", "rows")
    step("writer", "clean", rows="${rows.output.rows}")
    if "totals" in writer:
        step("writer", "totals", rows="${clean.output}")
elif "triage" in writer:
    step("writer", "triage", report="${task.input.report}")
else:
    step("writer", "program", wanted=package["instruction"])

handling = {node["id"]: {"retry_count": 1, "timeout_seconds": "1"} for node in nodes if node["service"] == "writer"}
print(json.dumps({"nodes": nodes, "edges": edges, "error_handling": handling}))
