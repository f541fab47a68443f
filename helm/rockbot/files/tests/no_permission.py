"""Runs with the agents' account and fails if the account has any permission in the cluster."""

import json
import os
import ssl
import sys
import urllib.request

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# Every account may review its own permissions.
ALWAYS_ALLOWED = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
CHECKED = [
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
    with urllib.request.urlopen(request, context=trust, timeout=15) as response:
        return json.load(response)["status"]


found = []
for namespace in sys.argv[1:]:
    rules = review("SelfSubjectRulesReview", {"namespace": namespace})
    for rule in rules["resourceRules"]:
        resources = set(rule.get("resources", [])) - ALWAYS_ALLOWED
        if resources:
            found.append(f"{namespace}: {rule['verbs']} {sorted(resources)}")
    for verb, group, resource in CHECKED:
        main, _, sub = resource.partition("/")
        attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": main}
        if sub:
            attributes["subresource"] = sub
        if review("SelfSubjectAccessReview", {"resourceAttributes": attributes})["allowed"]:
            found.append(f"{namespace}: {verb} {resource}")
    print(f"checked the permissions in {namespace}")
if found:
    sys.exit("the agents' account has permissions: " + "; ".join(found))
