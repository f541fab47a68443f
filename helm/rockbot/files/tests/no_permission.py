"""Runs as the agents' account, with its token, and fails if that may do anything in the cluster."""

import json
import os
import ssl
import sys
import urllib.request

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# What every account may: ask what it may.
EVERYBODY = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
WANTED = [
    ("create", "", "pods"),
    ("create", "", "pods/exec"),
    ("get", "", "secrets"),
    ("list", "", "pods"),
    ("delete", "apps", "deployments"),
    ("create", "rbac.authorization.k8s.io", "rolebindings"),
]

server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
trust = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
with open(f"{ACCOUNT}/token", encoding="utf-8") as file:
    token = file.read()


def review(kind, spec):
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    request = urllib.request.Request(
        f"{server}/apis/authorization.k8s.io/v1/{kind.lower()}s",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, context=trust, timeout=15) as answer:
        return json.load(answer)["status"]


found = []
for namespace in sys.argv[1:]:
    rules = review("SelfSubjectRulesReview", {"namespace": namespace})
    for rule in rules["resourceRules"]:
        more = set(rule.get("resources", [])) - EVERYBODY
        if more:
            found.append(f"{namespace}: {rule['verbs']} {sorted(more)}")
    for verb, group, resource in WANTED:
        main, _, sub = resource.partition("/")
        wanted = {"namespace": namespace, "verb": verb, "group": group, "resource": main}
        if sub:
            wanted["subresource"] = sub
        if review("SelfSubjectAccessReview", {"resourceAttributes": wanted})["allowed"]:
            found.append(f"{namespace}: {verb} {resource}")
    print(f"looked at what the account may do in {namespace}")
if found:
    sys.exit("the agents' account may: " + "; ".join(found))
